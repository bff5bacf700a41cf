#include "train/stop_request.hpp"

#include <fmt/core.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/system/signals.hpp"

namespace millrace {

StopRequest::StopRequest(const RunOptions& options, std::filesystem::path run_dir, bool polls_file)
    : file_(run_dir / "STOP"), polls_file_(polls_file), margin_(options.stop_margin) {
  using std::chrono::system_clock;
  if (options.walltime > 0)
    end_ = system_clock::now() +
           std::chrono::duration_cast<system_clock::duration>(std::chrono::duration<double>(options.walltime));
  else if (const char* slurm = std::getenv("SLURM_JOB_END_TIME"))  // exported by Slurm 23.02 and later
    end_ = system_clock::from_time_t(std::time_t(std::atoll(slurm)));
}

bool StopRequest::requested(double step_seconds, double checkpoint_seconds) {
  if (const int signal = stop_signal()) {
    reason_ = fmt::format("signal {}", ::strsignal(signal));
    return true;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - polled_ < std::chrono::milliseconds(500)) return !reason_.empty();
  polled_ = now;
  std::error_code none;
  if (polls_file_ && std::filesystem::exists(file_, none)) {
    reason_ = "file " + file_.string();
    return true;
  }
  if (limited()) {
    const double left = std::chrono::duration<double>(end_ - std::chrono::system_clock::now()).count();
    if (left < margin_ + 2 * checkpoint_seconds + step_seconds) {
      reason_ = "end of the job's time";
      return true;
    }
  }
  return false;
}

}  // namespace millrace
