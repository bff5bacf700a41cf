// What `millrace predict` writes of each sample, and how it follows from the results of the network.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/train/commands.hpp"
#include "millrace/train/session/session.hpp"

namespace millrace {

// One data set of the output. Its first dimension are the samples.
struct PredictionArray {
  enum class Content { classes, probabilities, top_classes, top_probabilities, values };
  Content content = Content::values;
  std::string name;  // in the file
  DType dtype = DType::f32;
  Shape row;                             // of one sample; (): one value
  std::vector<std::string> class_names;  // of classes and of the probabilities of each; empty: they have none
  bool tabular = true;                   // false: a map of a sample, or features, which are no columns of a table

  std::int64_t values() const { return row.count(); }  // of one sample
  std::size_t bytes() const { return std::size_t(values()) * size_of(dtype); }
};

// How the results of a regression become values in the unit of the stored data: the inverse of ValueConversion.
struct TargetUnit {
  std::vector<double> mean, std;  // by channel; empty: they are not normalised
  Transform transform = Transform::none;
  double scale = 1, offset = 0;
  float stored(float result, std::size_t channel) const;
};

// One result of the network, and the data sets that are made of it.
struct PredictionOutput {
  enum class Kind { classes, binary, regression, features };
  Kind kind = Kind::classes;
  int value = -1;            // of the graph
  Shape result = {};         // of one sample: (..., classes) for classes
  std::int64_t classes = 0;  // classes: their number
  TargetUnit unit = {};      // regression
  std::vector<PredictionArray> arrays = {};

  // Fills the data sets, in the order of `arrays`, from the results of some rows. Returns how many of the results are
  // not finite.
  std::int64_t fill(std::span<const float> results, std::span<char* const> to) const;
};

// With data.split: the data set `sample`, the number of each sample in the data that is divided. It comes last.
PredictionArray sample_numbers();

// graph: of the network in Mode::infer, with its losses. Error(config): the options do not fit the network.
std::vector<PredictionOutput> prediction_outputs(const Session&, const Graph&, const PredictOptions&);

}  // namespace millrace
