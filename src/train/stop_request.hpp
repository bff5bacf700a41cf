// Why a run ends before its last step: a signal, a file STOP in the run directory, the end of the job's time. Asked by
// every rank each step; the ranks agree in the step's small sum.
#pragma once
#include <chrono>
#include <filesystem>
#include <string>

#include "millrace/config/run_config.hpp"

namespace millrace {

class StopRequest {
 public:
  StopRequest(const RunOptions&, std::filesystem::path run_dir, bool polls_file);
  bool requested(double step_seconds, double checkpoint_seconds);
  const std::string& reason() const { return reason_; }

 private:
  std::filesystem::path file_;
  bool polls_file_;
  double margin_;
  std::chrono::system_clock::time_point end_{};  // of the job; epoch: no limit
  std::chrono::steady_clock::time_point polled_{};
  std::string reason_;
};

}  // namespace millrace
