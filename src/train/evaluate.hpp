// Evaluator: evaluates a network on data.valid. Every sample counts exactly once, on any number of ranks.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/train/commands.hpp"
#include "millrace/train/session/network.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/loss_means.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/session/evaluation.hpp"

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
  void add_exactly();
  Evaluation totals(const StepState& sums, std::int64_t unread);
  void add_metrics(Evaluation&);
  // What a loss has added up on this rank for its metrics.
  struct Counted {
    Task task;
    EvaluationCounts counts;
    std::span<const std::uint64_t> values;  // empty: it has no metrics
    std::size_t loss;                       // LossTerm::number
    double targets;                         // Task::regression: how many values were compared, on all ranks
  };
  // Collective. details: gets the counts of single classes; null: they are not wanted.
  std::vector<MetricValue> metrics_of_loss(const Counted&, Evaluation* details);
  std::vector<MetricValue> counted_metrics(const Counted&, Evaluation* details);
  std::vector<MetricValue> metrics_of_classes(const Counted&, Evaluation* details);
  Session& s_;
  Network& network_;
  LoaderOptions options_;
  DeviceSlots slots_;
  LossMeans losses_;
  // With run.reproducible = strict. regression_sums_: of PointwiseLossSpec, by loss.
  ExactLosses exact_;
  std::array<std::array<ExactDouble, 4>, LossMeans::max_losses> regression_sums_;
  BatchForward forward_;
};

// Error(data): there is no such checkpoint, or it is damaged. Collective.
CheckpointModel find_checkpoint(World&, const CheckpointChoice&);

}  // namespace millrace
