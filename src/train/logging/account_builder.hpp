// AccountBuilder: accumulates the timing account of this rank, step by step.
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
  AccountBuilder(Session&);                         // construct it before the network allocates its memory
  void step(const StepMetrics&, const StepTimer&);  // call after a step has been collected
  void checkpoint(bool needed) {
    ++mine_.checkpoints;
    mine_.needed_checkpoints += needed;
  }
  void evaluation() { ++mine_.evaluations; }
  // This rank's account, without the parts that other objects measure, such as phases and device time.
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
