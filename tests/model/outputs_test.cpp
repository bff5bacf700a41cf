// keep_outputs(): inference that ends in chosen values of a network.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace outputs_test {

using namespace test;

const ModelBatch batch{3, {16, 16, 3}, DType::u8, {}, true};

ModelSpec resnet() {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = 18;  // with a pooled stem, projections and additions
  spec.stem = "imagenet";
  spec.width = 4;
  spec.outputs = 10;
  return spec;
}
ModelSpec two_heads() {
  ModelSpec spec;
  spec.name = "layers";
  spec.layers = {"linear 16", "gelu as=trunk", "linear 2", "loss mse y=a", "linear 3 from=trunk", "loss mse y=b"};
  spec.own_losses = true;
  spec.targets = {{"a", 0, 2, 0}, {"b", 2, 3, 0}};
  return spec;
}

// The network for inference, with random parameters that depend only on their names.
class Inference {
 public:
  Inference(Device& device, Backend& backend, Graph graph, int fusion) : layout_(graph) {
    master_.resize(std::size_t(layout_.count));
    running_.resize(std::size_t(layout_.stats_count));
    layout_.initialise(graph, 7, master_.data(), running_.data());
    CompiledGraph compiled = compile_graph(backend, std::move(graph), fusion);
    arena_ = Buffer(device, MemoryKind::device, compiled.plan.arena_bytes + 64);
    packed_ = Buffer(device, MemoryKind::device, compiled.plan.packed_weight_bytes + 64);
    program_ = std::make_unique<Program>(std::move(compiled), layout_,
                                         ProgramMemory{.arena = arena_.data(),
                                                       .packed_weights = packed_.data(),
                                                       .master = master_.data(),
                                                       .running = running_.data(),
                                                       .state = &state_});
    program_->repack_weights();
  }
  // The batch has no labels.
  void run() {
    const Shape& samples = program_->graph().values[Graph::x].shape;
    std::vector<std::uint8_t> x;
    x.resize(std::size_t(samples.count()));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::uint8_t(i * i % 251);
    std::vector<std::int64_t> ids;
    ids.resize(std::size_t(samples[0]));
    std::iota(ids.begin(), ids.end(), std::int64_t(0));
    program_->forward({x.data(), DType::u8, samples}, {}, {ids.data(), DType::i64, {samples[0]}}, true);
  }
  std::vector<float> value(int v) const {
    const Tensor& t = program_->value(v);
    return {t.as<float>(), t.as<float>() + t.count()};
  }
  const Program& program() const { return *program_; }

 private:
  ParameterLayout layout_;
  std::vector<float> master_, running_;
  StepState state_;
  Buffer arena_, packed_;
  std::unique_ptr<Program> program_;
};

void expect_near(const std::vector<float>& got, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  float largest = 0, error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(got[i] - expected[i]));
  }
  EXPECT_GT(largest, 0) << what;
  EXPECT_LE(error, 1e-5f * largest) << what;  // merged operations round differently
}

std::vector<int> layers_of(const Graph& graph) {
  std::vector<int> out;
  for (const Node& node : graph.nodes)
    if (node.dst >= 0 && std::ranges::count(node.src, Graph::y) == 0) out.push_back(node.dst);
  return out;
}

TEST(Outputs, EveryLayerHasTheResultsOfTheWholeNetwork) {
  CpuContext context;
  Device& device = *context.compute.device;
  Backend& backend = *context.compute.backend;
  const Graph graph = build_model(resnet(), batch, DType::f32, Mode::infer);
  const std::vector<int> layers = layers_of(graph);
  Inference whole(device, backend, keep_outputs(graph, layers), 0);
  whole.run();
  Inference merged(device, backend, keep_outputs(graph, layers), 3);  // all at once: none may overwrite another
  merged.run();
  for (const int layer : layers) {
    const std::string& name = graph.values[std::size_t(layer)].name;
    expect_near(merged.value(layer), whole.value(layer), name + " of all");
    Inference alone(device, backend, keep_outputs(graph, {layer}), 3);
    alone.run();
    expect_near(alone.value(layer), whole.value(layer), name);
  }
}

TEST(Outputs, WhatTheyDoNotNeedIsLeftOutButForTheParameters) {
  const Graph graph = build_model(resnet(), batch, DType::f32, Mode::infer);
  const int first = layers_of(graph)[1];
  const Graph kept = keep_outputs(graph, {first});
  EXPECT_EQ(kept.nodes.size(), 2u);  // the input and a convolution
  EXPECT_EQ(kept.parameters.size(), graph.parameters.size());
  EXPECT_EQ(kept.stats.size(), graph.stats.size());
  EXPECT_TRUE(kept.losses().empty());
}

TEST(Outputs, SeveralPredictionsNeedNoTargets) {
  CpuContext context;
  const Graph graph = build_model(two_heads(), {3, {9}, DType::u8, {5}, false}, DType::f32, Mode::infer);
  std::vector<int> predictions;
  for (const int loss : graph.losses()) predictions.push_back(graph.nodes[std::size_t(loss)].src[0]);
  ASSERT_EQ(predictions.size(), 2u);
  Inference both(*context.compute.device, *context.compute.backend, keep_outputs(graph, predictions), 1);
  both.run();
  for (const Node& node : both.program().graph().nodes)
    EXPECT_EQ(std::ranges::count(node.src, Graph::y), 0) << node.name;
  for (const int value : predictions) {
    Inference alone(*context.compute.device, *context.compute.backend, keep_outputs(graph, {value}), 1);
    alone.run();
    expect_near(both.value(value), alone.value(value), graph.values[std::size_t(value)].name);
  }
}

}  // namespace outputs_test
}  // namespace millrace
