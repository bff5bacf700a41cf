// The parts of a page, each of one run, as HTML; "" where the run has nothing to show for it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "millrace/runs/run.hpp"

namespace millrace::report {

struct State {
  std::string css, word, detail;  // css: good, busy or bad
};
State state_of(const Run&);

// What is known of a run in a word each: label, HTML.
std::vector<std::pair<std::string, std::string>> run_facts(const Run&);
std::string findings_of(const Run&);

// The phases as they are stacked, what computes first.
const std::vector<Phase>& phase_order();
std::string phase_name(Phase);   // "waiting for data"
std::string phase_class(Phase);  // of its colour

std::string time_over_steps(const Run&);  // of rank 0
std::string time_by_rank(const Run&);
std::string timeline_of(const Run&);  // of the sampled steps
std::string loader_of(const Run&);
std::string communication_of(const Run&);
std::string kernels_of(const Run&);
std::string layers_of(const Run&);
std::string settings_of(const Run&);

std::string style();  // the page's CSS

}  // namespace millrace::report
