// Progress: lines on standard output, from rank 0. On a terminal one line that updates; in a file or pipe no carriage
// returns, a line for each of the first three steps and then at most one every log.every seconds.
#pragma once
#include <chrono>
#include <string>

#include "millrace/runs/metrics.hpp"

namespace millrace {

// mpirun gives ranks a pseudo-terminal whatever its own output is: under a launcher only MILLRACE_TERMINAL=1 makes the
// updating line.
bool on_terminal();

class Progress {
 public:
  Progress(bool enabled, bool terminal, double every_seconds);
  void step(const StepMetrics&, std::int64_t total_steps);
  void line(const std::string&);  // a line that stays

 private:
  bool enabled_, terminal_;
  double every_;
  std::int64_t shown_ = 0;
  std::chrono::steady_clock::time_point last_;
  bool open_line_ = false;
  double smooth_seconds_ = 0;  // of a step, for the time left
};

}  // namespace millrace
