// EvaluationSums: what the losses add up in an evaluation, and the metrics that follow.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "millrace/train/session/network.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/exact_sum.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

// Where the targets of a loss begin in a row of y. graph: before any rewrite.
std::size_t first_target_of(const Graph&, const Node& loss);

// Every evaluation calls begin(), then after_micro_batch() after each forward pass, then add_metrics().
class EvaluationSums {
 public:
  EvaluationSums(Session&, Network&);
  void begin();              // collective
  void after_micro_batch();  // with run.reproducible = strict: moves sums of the device, which shares the host's memory
  void add_metrics(Evaluation&);  // collective

 private:
  // Of one loss, in the order of their numbers.
  struct Loss {
    Task task;
    EvaluationCounts counts;
    std::size_t begin = 0, count = 0;  // of its values among the network's metrics
    // Task::regression:
    std::size_t outputs = 0, values_of_output = 1;  // a row has this many targets of each output
    std::size_t first_target = 0;                   // in a row of y
    std::vector<ExactDouble> exact = {};            // with strict: the sums of the micro-batches
  };
  void add_loss(const Spec&, std::size_t first_target);
  void read_origins();
  std::span<const double> normalisation(const std::vector<double>& of_targets, const Loss&) const;
  // Collective. details: gets the counts of single classes; null: they are not wanted.
  std::vector<MetricValue> of_loss(const Loss&, std::span<const std::uint64_t>, double rows, Evaluation* details,
                                   std::vector<RegressionErrors>& outputs);
  std::vector<MetricValue> of_regression(const Loss&, std::span<const std::uint64_t>, double rows,
                                         std::vector<RegressionErrors>& outputs);
  std::vector<MetricValue> of_counts(const Loss&, std::span<const std::uint64_t>, Evaluation* details);
  std::vector<MetricValue> of_classes(const Loss&, std::span<const std::uint64_t>, Evaluation* details);

  Session& s_;
  Network& network_;
  std::vector<Loss> losses_;
  // A value near the targets of each output, by place among the metrics: those of the first sample. The same on all
  // ranks. Empty before the first evaluation, and without a regression.
  std::map<std::size_t, std::vector<double>> origins_;
};

}  // namespace millrace
