#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/session/metrics.hpp"

namespace millrace {

// Of one of the losses of a network with `loss` lines.
struct LossEvaluation {
  std::string name;
  Task task = Task::classes;
  double loss = 0;
  double top1 = 0, top5 = 0;  // NaN: there is none
  std::vector<MetricValue> metrics = {};
  std::vector<RegressionErrors> outputs = {};  // Task::regression with several outputs
};

// The result of one evaluation of the validation data.
struct Evaluation {
  double loss = 0, top1 = 0, top5 = 0;  // NaN: there is no top5 for Task::binary
  std::int64_t rows = 0;                // labels that were counted: one a sample, or one for each position
  std::int64_t unread = 0;              // samples that could not be read and were skipped (data.on_error)
  bool labels = true;
  const char* positions = "";  // what has a label, if it is not the sample: pixels or voxels
  Task task = Task::classes;
  std::vector<MetricValue> metrics = {};      // beyond loss, top1 and top5
  std::vector<LossEvaluation> losses = {};    // Task::several
  std::vector<ClassCounts> classes = {};      // empty: they were not counted
  std::vector<double> confusion = {};         // the counts that they are from; empty: the classes are too many
  std::vector<std::string> class_names = {};  // empty: the classes have none
  // Task::regression: of each output; empty: there is one, or they are too many.
  std::vector<RegressionErrors> outputs = {};
  double value(BestMetric) const;  // NaN: this evaluation has none
  // Of `losses`, by names such as "loss.NAME" and "accuracy.NAME".
  std::vector<std::pair<std::string, double>> values_of_losses() const;
  std::string str() const;
};

}  // namespace millrace
