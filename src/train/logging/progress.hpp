// Progress: the lines that rank 0 prints while it trains. On a terminal it updates one line in place. In a file or pipe
// it prints a line for each of the first three steps, and then at most one every log.every seconds.
#pragma once
#include <chrono>
#include <string>

#include "millrace/runs/metrics.hpp"

namespace millrace {

// Whether to show the updating line. mpirun gives ranks a pseudo-terminal even when its own output is a file, so under
// a launcher this is true only with MILLRACE_TERMINAL=1.
bool on_terminal();

// ", speed of light 62 %"; "" if the share is 0, that is, not known.
std::string light_text(double share);

class Progress {
 public:
  Progress(bool enabled, bool terminal, double every_seconds);
  void step(const StepMetrics&, std::int64_t total_steps);
  void line(const std::string&);  // prints a line that is not overwritten

 private:
  bool enabled_, terminal_;
  double every_;
  std::int64_t shown_ = 0;
  std::chrono::steady_clock::time_point last_;
  bool open_line_ = false;
  double smooth_seconds_ = 0;  // moving average of the step time, for the estimate of the time left
};

}  // namespace millrace
