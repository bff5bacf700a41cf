// Recorder: what the account of a run is made of, gathered step by step.
#pragma once
#include <vector>

#include "millrace/comm/collective.hpp"
#include "millrace/runs/metrics.hpp"
#include "millrace/telemetry/account.hpp"
#include "millrace/train/distributed/collective_stats.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/step_timer.hpp"
#include "train/step/step_timing_mean.hpp"

namespace millrace {

class AccountBuilder {
 public:
  AccountBuilder(Session&);                         // before the network takes its memory
  void step(const StepMetrics&, const StepTimer&);  // after each step was collected
  void checkpoint(bool needed) { ++mine_.checkpoints, mine_.needed_checkpoints += needed; }
  void evaluation() { ++mine_.evaluations; }
  // This rank's account, but for what others know: phases, device.
  RankAccount stats(Network&, const LoaderStats&, int device_timestamps,
                    const std::vector<std::int64_t>& milestones) const;

 private:
  Session& s_;
  RankAccount mine_;
  StepTimeHistogram steps_;
  CollectiveStats sums_;
  StepTimingMean pace_;
  ProcessStats before_;
};

}  // namespace millrace
