// PrometheusFile: the progress of a run in the text format of Prometheus (log.prometheus). Rank 0 replaces the file as
// a whole, at most every log.prometheus_every. The file stays when the run ends and then says that the run is not
// active. A failure to write gives one warning; writing is tried again later.
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
  // Session and timeline must outlive it. `run`: the state that the run starts or resumes from.
  PrometheusFile(const Session&, const RunState& run, const Timeline&);
  // Error on all ranks if the file exists and is of another program. Collective.
  static void require_own(World&, const std::filesystem::path&);
  void step(const StepMetrics&);
  void evaluation(const RunState&);
  void checkpoint(std::int64_t step);
  void ended(Exit);  // writes the file at once

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
  std::array<double, phase_count> phase_seconds_{};  // as last written, because a counter must not decrease
  std::int64_t steps_ = 0, samples_ = 0, unread_ = 0, skipped_ = 0;  // since this launch
  double step_seconds_ = 0;                                          // time of the steps since this launch
  std::int64_t valid_step_, checkpoint_step_ = -1;
  double valid_loss_, valid_accuracy_, checkpoint_time_ = 0;
  int exit_code_ = -1;
  bool warned_ = false;
};

}  // namespace millrace
