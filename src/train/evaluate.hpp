// Evaluator: evaluates a network on data.valid. Every sample counts exactly once, on any number of ranks.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/train/commands.hpp"
#include "millrace/train/session/network.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/exact_sum.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

// run() may be called repeatedly. All evaluations use the same device slots, so that the work captured in one
// evaluation is replayed in the next.
class Evaluator {
 public:
  Evaluator(Session&, Network&);
  Evaluation run();  // collective

 private:
  void forward(const Batch&);
  void add_exactly();
  void add_metrics(Evaluation&);
  void add_counted_metrics(Evaluation&, std::vector<double> values);
  void add_class_metrics(Evaluation&, std::vector<double> counts);
  Session& s_;
  Network& network_;
  LoaderOptions options_;
  DeviceSlots slots_;
  ExactDouble loss_, loss_weight_;              // with run.reproducible = strict
  std::array<ExactDouble, 4> regression_sums_;  // the same; of PointwiseLossSpec
  // By number of rows and device slot.
  std::map<std::pair<std::int64_t, const DeviceSlots::Slot*>, std::unique_ptr<CapturedStep>> captured_;
};

// Error(data): there is no such checkpoint, or it is damaged. Collective.
CheckpointModel find_checkpoint(World&, const CheckpointChoice&);

}  // namespace millrace
