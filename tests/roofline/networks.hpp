// Networks and steps for the tests of the model.
#pragma once
#include "millrace/model/layout.hpp"
#include "millrace/model/zoo.hpp"
#include "millrace/roofline/step_time.hpp"

namespace millrace::roofline {

inline Graph layers(std::vector<std::string> lines, const Shape& sample, DType compute, std::int64_t rows,
                    std::int64_t outputs) {
  ModelSpec spec;
  spec.name = "layers";
  spec.layers = std::move(lines);
  spec.outputs = outputs;
  return build_model(spec, {rows, sample, DType::u8, {}, true}, compute, Mode::train);
}

inline Graph resnet50(DType compute, std::int64_t rows) {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = 50;
  spec.outputs = 1000;
  return build_model(spec, {rows, {224, 224, 3}, DType::u8, {}, true}, compute, Mode::train);
}

// SGD with momentum on one rank.
inline OptimizerSpec sgd(const Graph& graph) {
  const ParameterLayout layout(graph);
  OptimizerSpec spec;
  spec.count = layout.count;
  spec.stats_count = layout.stats_count;
  spec.segments = layout.segments(default_rules(graph, 1e-4f), spec);
  spec.weight_dtype = graph.dtype;
  return spec;
}

inline TrainingStep step_of(const Graph& graph, int micro_batches = 1) {
  TrainingStep step;
  step.micro_batches = {{graph, micro_batches}};
  step.optimizer = sgd(graph);
  step.global_batch = graph.rows * micro_batches;
  return step;
}

}  // namespace millrace::roofline
