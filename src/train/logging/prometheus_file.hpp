// PrometheusFile: how a run goes, for Prometheus (log.prometheus): written whole by rank 0, at most every so often. It
// stays when the run ends, marked as not active. A failure to write is warned of once; it is tried again.
#pragma once
#include <array>
#include <chrono>
#include <string>

#include "millrace/runs/metrics.hpp"
#include "millrace/telemetry/exposition.hpp"
#include "millrace/train/session/session.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

class PrometheusFile {
 public:
  // Both outlive it. `run`: where the run begins, or goes on.
  PrometheusFile(const Session&, const RunState& run, const Timeline&);
  void step(const StepMetrics&);
  void evaluation(const RunState&);
  void checkpoint(std::int64_t step);
  void ended(Exit);  // written at once

 private:
  void write();
  std::string text();
  const std::filesystem::path path_;
  const std::chrono::duration<double> every_;
  const Exposition::Labels labels_;
  const int ranks_;
  const std::int64_t planned_steps_;
  const Timeline& timeline_;
  std::chrono::steady_clock::time_point written_{};
  StepMetrics last_;
  std::array<double, phase_count> phase_seconds_{};                  // as written: a counter must not fall
  std::int64_t steps_ = 0, samples_ = 0, unread_ = 0, skipped_ = 0;  // of this start
  double step_seconds_ = 0;                                          // the same
  std::int64_t valid_step_, checkpoint_step_ = -1;
  double valid_loss_, valid_accuracy_, checkpoint_time_ = 0;
  int exit_code_ = -1;
  bool warned_ = false;
};

}  // namespace millrace
