// Batch norms that take in their neighbours, where the backend has kernels for it.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace merge_norms_test {

using namespace test;

struct Merging : FusionRules {
  int max_fusion_level() const override { return 3; }
  bool merges_norm(const BatchNormSpec&) const override { return true; }
};

Graph network(ModelSpec spec, Mode mode = Mode::train, DType dtype = DType::f32) {
  spec.outputs = 10;
  return build_model(spec, {5, {16, 16, 3}, DType::u8, {}, true}, dtype, mode);
}
Graph resnet(std::int64_t depth, Mode mode = Mode::train) {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = depth;
  spec.width = 4;
  return network(spec, mode);
}
Graph layers(std::vector<std::string> lines, DType dtype = DType::f32) {
  ModelSpec spec;
  spec.name = "layers";
  spec.layers = std::move(lines);
  spec.layers.insert(spec.layers.end(), {"globalpool", "linear outputs"});
  return network(spec, Mode::train, dtype);
}

Graph rewritten(const Graph& graph, int level) {
  Merging rules;
  std::vector<std::string> unfused;
  return rewrite(graph, rules, level, unfused);
}
int dual_norms(const Graph& graph) { return count_fused(graph, &BatchNormSpec::residual_norm); }

TEST(MergeNorms, TheNormOfAProjectionIsMergedIntoTheNormThatAddsIt) {
  // One block of each stage has a projection, the first stage only in bottlenecks.
  for (const auto& [depth, projections] : {std::pair{8, 2}, {18, 3}, {50, 4}})
    for (const Mode mode : {Mode::train, Mode::infer}) {
      const Graph plain = resnet(depth, mode), fused = rewritten(plain, 1);
      EXPECT_EQ(dual_norms(fused), projections) << depth;
      EXPECT_EQ(fuse(plain, 1).nodes.size() - fused.nodes.size(), std::size_t(projections)) << depth;
      EXPECT_EQ(dual_norms(rewritten(plain, 0)), 0);
      // What checkpoints hold.
      ASSERT_EQ(fused.parameters.size(), plain.parameters.size());
      for (std::size_t p = 0; p < plain.parameters.size(); ++p)
        EXPECT_EQ(fused.parameters[p].name, plain.parameters[p].name);
      ASSERT_EQ(fused.stats.size(), plain.stats.size());
    }
}

// Every node computes with the parameters and statistics of its own norms.
TEST(MergeNorms, TheMergedNodeHasTheWeightsAndStatisticsOfBothNorms) {
  const Graph graph = rewritten(resnet(8), 1);
  const auto name = [&](int parameter) { return graph.parameters[std::size_t(parameter)].name; };
  for (const Node& node : graph.nodes) {
    const auto* norm = std::get_if<BatchNormSpec>(&node.spec);
    if (!norm || !norm->residual_norm) continue;
    ASSERT_EQ(node.weight.size(), 4u);
    const std::string block = node.name.substr(0, node.name.rfind('.'));
    EXPECT_EQ(name(node.weight[0]), block + ".bn2.weight");
    EXPECT_EQ(name(node.weight[1]), block + ".bn2.bias");
    EXPECT_EQ(name(node.weight[2]), block + ".downsample.1.weight");
    EXPECT_EQ(name(node.weight[3]), block + ".downsample.1.bias");
    EXPECT_EQ(graph.stats[std::size_t(node.stats)].name, block + ".bn2");
    EXPECT_EQ(graph.stats[std::size_t(node.residual_stats)].name, block + ".downsample.1");
    EXPECT_EQ(graph.nodes[std::size_t(graph.producer(node.src[1]))].name, block + ".downsample.0");
  }
}

TEST(MergeNorms, AtLevelTwoBothConvolutionsComputeTheirSums) {
  const Graph graph = rewritten(resnet(8), 2);
  EXPECT_EQ(count_fused(graph, &BatchNormSpec::consumes_residual_sums), 2);
  EXPECT_EQ(count_fused(graph, &BatchNormSpec::consumes_sums), 7);
  EXPECT_EQ(count_fused(graph, &ConvSpec::produces_sums), 9);
  for (const Node& node : graph.nodes) {
    if (node.residual_sums < 0) continue;
    EXPECT_EQ(graph.nodes[std::size_t(graph.producer(node.src[0]))].sums, node.sums);
    EXPECT_EQ(graph.nodes[std::size_t(graph.producer(node.src[1]))].sums, node.residual_sums);
  }
}

TEST(MergeNorms, OnlyAPlainNormWithOneReaderIsMerged) {
  const std::vector<std::string> start = {"conv 8 3 pad=same as=x", "conv 8 3 pad=same", "batchnorm as=a"};
  const auto with = [&](std::vector<std::string> rest) {
    std::vector<std::string> all = start;
    all.insert(all.end(), rest.begin(), rest.end());
    return dual_norms(rewritten(layers(all), 1));
  };
  EXPECT_EQ(with({"conv 8 1 from=x", "batchnorm", "add a", "relu"}), 1);
  EXPECT_EQ(with({"conv 8 1 from=x", "batchnorm", "add a"}), 1);  // also without a ReLU
  EXPECT_EQ(with({"relu as=r", "conv 8 1 from=x", "batchnorm", "add r", "relu"}), 0);
  EXPECT_EQ(with({"conv 8 1 from=x", "batchnorm as=b", "add a", "relu", "add b"}), 0);
  EXPECT_EQ(with({"conv 8 1 from=x", "batchnorm", "add a", "relu", "add a"}), 0);
  EXPECT_EQ(with({"add x", "relu"}), 0);
}

int pooled_norms(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes)
    if (const auto* norm = std::get_if<BatchNormSpec>(&node.spec)) count += norm->pool.has_value();
  return count;
}

TEST(MergeNorms, TheMaxPoolOfAStemIsMergedIntoItsNorm) {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = 18;
  spec.width = 4;
  spec.stem = "imagenet";
  for (const Mode mode : {Mode::train, Mode::infer})
    for (const int level : {1, 2}) {
      const Graph graph = rewritten(network(spec, mode), level);
      EXPECT_EQ(pooled_norms(graph), 1);
      const auto is_stem = [](const Node& node) { return node.name == "bn1"; };
      const auto stem = std::find_if(graph.nodes.begin(), graph.nodes.end(), is_stem);
      ASSERT_NE(stem, graph.nodes.end());
      const auto& norm = std::get<BatchNormSpec>(stem->spec);
      EXPECT_EQ(norm.src, (Shape{5, 8, 8, 4}));
      EXPECT_EQ(norm.dst(), (Shape{5, 4, 4, 4}));
      EXPECT_EQ(graph.values[std::size_t(stem->dst)].shape, norm.dst());
      EXPECT_EQ(norm.consumes_sums, level == 2 && mode == Mode::train);
      for (const Node& node : graph.nodes)
        if (const auto* pool = std::get_if<PoolSpec>(&node.spec)) {
          EXPECT_EQ(pool->kind, PoolSpec::Kind::global);
        }
    }
  EXPECT_EQ(pooled_norms(rewritten(network(spec), 0)), 0);
}

TEST(MergeNorms, OnlyAMaxPoolThatAloneReadsTheReluIsMerged) {
  const auto with = [&](std::vector<std::string> rest) {
    std::vector<std::string> all = {"conv 8 3 pad=same as=x", "batchnorm"};
    all.insert(all.end(), rest.begin(), rest.end());
    return pooled_norms(rewritten(layers(all), 2));
  };
  EXPECT_EQ(with({"relu", "maxpool 3 stride=2 pad=1"}), 1);
  EXPECT_EQ(with({"relu", "maxpool 15x16"}), 1);
  EXPECT_EQ(with({"relu", "maxpool 16"}), 0);  // 256 positions
  EXPECT_EQ(with({"relu", "avgpool 2"}), 0);
  EXPECT_EQ(with({"maxpool 2"}), 0);
  EXPECT_EQ(with({"tanh", "maxpool 2"}), 0);
  EXPECT_EQ(with({"add x", "relu", "maxpool 2"}), 0);
  EXPECT_EQ(with({"relu as=r", "maxpool 1", "add r"}), 0);
}

// The convolution behind a pool reads no ReLU, so it cannot compute the gradient sums of the norm before the pool, nor
// apply that norm.
TEST(MergeNorms, ANormWithAPoolComputesItsGradientSums) {
  const std::vector<std::string> net = {"conv 8 3 pad=same", "batchnorm", "relu", "maxpool 2", "conv 8 3"};
  EXPECT_EQ(count_fused(rewritten(layers(net), 3), &BatchNormSpec::consumes_diff_sums), 0);
}

TEST(MergeNorms, AtLevelThreeConvolutionsApplyTheOtherNorms) {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = 18;
  spec.width = 4;
  spec.stem = "pool";
  const Graph graph = rewritten(network(spec), 3);
  EXPECT_EQ(dual_norms(graph), 3);
  EXPECT_EQ(pooled_norms(graph), 1);
  EXPECT_EQ(count_fused(graph, &BatchNormSpec::produces_affine), 8);
  for (const Node& node : graph.nodes)
    if (const auto* norm = std::get_if<BatchNormSpec>(&node.spec); norm && (norm->residual_norm || norm->pool)) {
      EXPECT_FALSE(norm->produces_affine || norm->consumes_diff_sums) << node.name;
    }
}

int relu6_norms(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes)
    if (const auto* norm = std::get_if<BatchNormSpec>(&node.spec)) count += norm->activation == Activation::relu6;
  return count;
}

TEST(MergeNorms, ARelu6ThatAloneReadsANormIsMergedIntoIt) {
  const auto with = [&](std::vector<std::string> rest) {
    std::vector<std::string> all = {"conv 8 3 pad=same as=x", "batchnorm"};
    all.insert(all.end(), rest.begin(), rest.end());
    const Graph graph = layers(all);
    EXPECT_EQ(relu6_norms(rewritten(graph, 0)), 0);
    return relu6_norms(rewritten(graph, 1));
  };
  EXPECT_EQ(with({"relu6"}), 1);
  EXPECT_EQ(with({"relu6", "conv 8 1", "batchnorm", "add x", "relu6"}), 2);  // with a residual
  EXPECT_EQ(with({"relu6", "conv 8 1", "batchnorm", "relu6"}), 2);
  EXPECT_EQ(with({"relu6", "relu6"}), 1);
  EXPECT_EQ(with({"relu", "relu6"}), 0);
  EXPECT_EQ(with({"dropout 0.1", "relu6"}), 0);
}

TEST(MergeNorms, TheProcessorMergesRelu6) {
  const CpuContext cpu;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Graph graph =
        layers({"conv 8 3 pad=same", "batchnorm", "relu6", "conv 8 3", "batchnorm as=b", "relu6", "add b"}, dtype);
    const CompiledGraph compiled = compile_graph(*cpu.compute.backend, graph, 1);
    EXPECT_EQ(relu6_norms(compiled.graph), 1) << name_of(dtype);  // the other has two readers
  }
}

TEST(MergeNorms, ABackendWithoutKernelsKeepsTheNodes) {
  const CpuContext cpu;
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = 18;
  spec.width = 4;
  spec.stem = "pool";
  const CompiledGraph compiled = compile_graph(*cpu.compute.backend, network(spec), 1);
  EXPECT_EQ(dual_norms(compiled.graph) + pooled_norms(compiled.graph), 0);
  for (const std::string& note : compiled.notes) EXPECT_EQ(note.find("norm"), note.npos) << note;
}

}  // namespace merge_norms_test
}  // namespace millrace
