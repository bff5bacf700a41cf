// The sections of a page as HTML, each for one run; "" when the run has no data for it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "millrace/runs/run.hpp"

namespace millrace::report {

struct State {
  std::string css, word, detail;  // css: the class good, busy or bad
};
State state_of(const Run&);

// The main results of a run: label and HTML.
std::vector<std::pair<std::string, std::string>> run_facts(const Run&);
std::string findings_of(const Run&);

// The phases in the order in which plots stack them; computing comes first.
const std::vector<Phase>& phase_order();
std::string phase_class(Phase);  // the CSS class that sets its color

// For rank 0. steps_per_epoch: as in PlotText.
std::string time_over_steps(const Run&, double steps_per_epoch);
std::string time_by_rank(const Run&);
std::string timeline_of(const Run&);  // the sampled steps
std::string loader_of(const Run&);
std::string communication_of(const Run&);
std::string kernels_of(const Run&);
std::string layers_of(const Run&);
std::string light_of(const Run&);  // the operations of the traced steps, beside the rates of the machine
std::string evaluations_of(const Run&);
std::string settings_of(const Run&);

std::string style();  // the page's CSS

}  // namespace millrace::report
