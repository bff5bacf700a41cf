// StopRequest: detects that a run must end before its last step: because of a signal, a file named STOP in the run
// folder, or the end of the job's time. Every rank calls requested() at each step, and StepRunner::collect() combines
// the results of all ranks.
#pragma once
#include <chrono>
#include <filesystem>
#include <string>

#include "millrace/config/run_config.hpp"

namespace millrace {

class StopRequest {
 public:
  // polls_file: whether this rank looks for the file STOP.
  StopRequest(const RunOptions&, std::filesystem::path run_dir, bool polls_file);
  // Durations of a step and of a checkpoint: the job must have enough time left for them.
  bool requested(double step_seconds, double checkpoint_seconds);
  bool limited() const { return end_.time_since_epoch().count() != 0; }  // the end of the job is known
  const std::string& reason() const { return reason_; }

 private:
  std::filesystem::path file_;
  bool polls_file_;
  double margin_;
  std::chrono::system_clock::time_point end_{};  // end of the job; the clock's epoch: no limit
  std::chrono::steady_clock::time_point polled_{};
  std::string reason_;
};

}  // namespace millrace
