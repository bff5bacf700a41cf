// Evaluator: evaluates a network on data.valid. Every sample counts exactly once, on any number of ranks.
#pragma once
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "millrace/train/commands.hpp"
#include "millrace/train/session/network.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/loss_means.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/session/evaluation.hpp"
#include "train/step/evaluation_sums.hpp"

namespace millrace {

// The forward pass of a network over batches of a loader, captured once for each number of rows and device slot.
class BatchForward {
 public:
  BatchForward(Device& device, Network& network, std::string what)
      : device_(device), network_(network), what_(std::move(what)) {}
  void run(const Batch&);  // enqueues

 private:
  Device& device_;
  Network& network_;
  std::string what_;  // for profilers: "evaluation"
  std::map<std::pair<std::int64_t, const DeviceSlots::Slot*>, std::unique_ptr<CapturedStep>> captured_;
};

// run() may be called repeatedly. All evaluations use the same device slots, so that the work captured in one
// evaluation is replayed in the next.
class Evaluator {
 public:
  Evaluator(Session&, Network&);
  Evaluation run();  // collective

 private:
  Evaluation totals(const StepState& sums, std::int64_t unread);
  Session& s_;
  Network& network_;
  LoaderOptions options_;
  DeviceSlots slots_;
  LossMeans losses_;
  ExactLosses exact_;  // with run.reproducible = strict
  EvaluationSums sums_;
  BatchForward forward_;
};

// Error(data): there is no such checkpoint, or it is damaged. Collective.
CheckpointModel find_checkpoint(World&, const CheckpointChoice&);

}  // namespace millrace
