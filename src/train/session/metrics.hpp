// The metrics of an evaluation: which there are for a network, and how they follow from what its loss adds up
// (ops/loss.hpp).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/config/run_config.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

// What the labels or targets are. classes: one label a sample. pixels: one at each position. language: the same, of
// tokens. binary: several labels a sample, each 0 or 1.
// several: the network has losses of its own, each with a task.
enum class Task { classes, pixels, language, binary, regression, several };
Task task_of(const NetworkSpec&);
Task task_of(const Spec& loss);

using MetricValue = std::pair<BestMetric, double>;
struct MetricTraits {
  BestMetric metric;
  const char* name;   // in configurations and files
  const char* title;  // in lines of text
  bool lower_is_better;
};
const MetricTraits& traits_of(BestMetric);
bool lower_is_better(std::string_view name);

// The metrics that an evaluation of this network has, in the order in which they are shown.
std::vector<BestMetric> metrics_of(const NetworkSpec&);
// Error(config) if an evaluation of this network does not have checkpoint.best.
void require_metric(BestMetric, const NetworkSpec&);

// What the loss of an evaluation counts: the values of the confusion matrix, and behind them those of the histograms of
// scores. 0: there are none.
struct EvaluationCounts {
  std::size_t confusion = 0, scores = 0;
};
EvaluationCounts counts_of(const NetworkSpec&);
EvaluationCounts counts_of(const Spec& loss);

// How often each class was right and wrong, over all ranks.
struct ClassCounts {
  std::int64_t right = 0, labels = 0, predictions = 0;  // labels: of this class; predictions: of this class
  bool occurs() const { return labels > 0 || predictions > 0; }
  double precision() const { return predictions > 0 ? double(right) / double(predictions) : 0; }
  double recall() const { return labels > 0 ? double(right) / double(labels) : 0; }
  double f1() const { return occurs() ? 2 * double(right) / double(labels + predictions) : 0; }  // and the Dice score
  double iou() const { return occurs() ? double(right) / double(labels + predictions - right) : 0; }
};
// From (classes, classes) counts at [label][prediction]; for Task::binary from (labels, 2, 2), see PointwiseLossSpec.
std::vector<ClassCounts> class_counts(std::span<const double> counts, Task);
// The means over all classes that occur: macro_f1, or mean_iou and mean_dice for Task::pixels.
std::vector<MetricValue> class_metrics(const std::vector<ClassCounts>&, Task);
// The mean area under the ROC curve of the classes that are the label of some rows, but not of all. From the histograms
// of ScoreBins, (classes, 2, bins). NaN: there is no such class.
double area_under_roc(std::span<const double> histograms);

// The errors of a regression, in the unit of the stored targets. r2 is NaN if all targets are equal.
struct RegressionErrors {
  double mae = 0, rmse = 0, r2 = 0;
};
// What an evaluation adds up of a regression on all ranks.
struct RegressionSums {
  std::span<const double> sums, origins;  // as PointwiseLossSpec has them
  double values = 0;                      // targets of each output
  // The normalisation of each output (data.normalize_targets), or one for all of them; empty: none.
  std::span<const double> mean = {}, std = {};
};
// Of each output.
std::vector<RegressionErrors> errors_of_outputs(const RegressionSums&);
// Of all values together: r2 = 1 - (sum of d^2) / (sum of squared distances to the mean of all targets).
RegressionErrors errors_of_all(const RegressionSums&);

// The means of precision, recall and F1 over the classes that occur: macro, and weighted by their labels.
struct ClassAverages {
  double precision = 0, recall = 0, f1 = 0;
};
ClassAverages macro_average(const std::vector<ClassCounts>&);
ClassAverages weighted_average(const std::vector<ClassCounts>&);

// A line for each class, and two for the averages. `names`: by class; empty: they have none.
std::string class_table(const std::vector<ClassCounts>&, Task, const std::vector<std::string>& names);
// A line for each output of a regression.
std::string output_table(const std::vector<RegressionErrors>&);

}  // namespace millrace
