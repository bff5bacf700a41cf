// What `millrace top` shows of a run, as lines: a pure function of what is known.
#pragma once
#include <string>
#include <vector>

#include "millrace/runs/run_monitor.hpp"

namespace millrace::app {

struct ViewOptions {
  int columns = 80;
  bool color = false, unicode = false;
  bool brief = false;  // two lines a run
};
// No line is wider than look.columns.
std::vector<std::string> describe(const RunSnapshot&, const ViewOptions&);

}  // namespace millrace::app
