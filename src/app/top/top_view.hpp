// The lines that `millrace top` shows of a run: a pure function of the snapshot.
#pragma once
#include <string>
#include <vector>

#include "millrace/runs/run_monitor.hpp"

namespace millrace::app {

struct ViewOptions {
  int columns = 80;
  bool color = false, unicode = false;
  bool brief = false;  // two lines for each run
};
// No line is wider than ViewOptions::columns.
std::vector<std::string> describe(const RunSnapshot&, const ViewOptions&);

}  // namespace millrace::app
