// Fusion level 3: norms with ReLU are applied by the convolution behind them, and their results are not stored.
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/norm/batch_norm_bf16.hpp"
#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace normalise_in_convs_test {

using namespace test;

ModelSpec resnet(std::int64_t depth) {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = depth;
  spec.width = 4;
  spec.outputs = 10;
  return spec;
}

Graph graph_of(const ModelSpec& spec, Mode mode = Mode::train) {
  return build_model(spec, {4, {16, 16, 3}, DType::u8, {}, true}, DType::f32, mode);
}

ModelSpec layers(std::vector<std::string> lines) {
  ModelSpec spec;
  spec.name = "layers";
  spec.layers = std::move(lines);
  return spec;
}

int normalised(const Graph& graph) { return count_fused(graph, &ConvSpec::normalises_src); }

bool has_region(const CompiledGraph& compiled, const std::string& name) {
  return std::ranges::any_of(compiled.plan.regions, [&](const Region& r) { return r.name == name; });
}

// The norms inside a block have one reader, a convolution; those of the stem and of the block outputs do not.
TEST(NormaliseInConvs, AppliesTheInnerNormsOfResidualBlocks) {
  const CpuContext cpu;
  for (const auto& [depth, inner] : {std::pair{8, 3}, {18, 8}, {50, 32}}) {
    const CompiledGraph two = compile_graph(*cpu.compute.backend, graph_of(resnet(depth)), 2),
                        three = compile_graph(*cpu.compute.backend, graph_of(resnet(depth)), 3);
    EXPECT_EQ(normalised(two.graph), 0);
    EXPECT_EQ(normalised(three.graph), inner) << depth;
    EXPECT_EQ(count_fused(three.graph, &BatchNormSpec::produces_affine), inner) << depth;
    EXPECT_EQ(three.fusion_level, 3);
    EXPECT_LT(three.cost().bytes, two.cost().bytes);
    EXPECT_EQ(three.graph.parameter_count(), two.graph.parameter_count());
  }
}

// The results of the norms are not in memory. Their gradients are, in the place of the gradients of their sources,
// which the convolutions before them compute; the sources live until then.
TEST(NormaliseInConvs, ResultsOfTheNormsTakeNoMemory) {
  const CpuContext cpu;
  const CompiledGraph two = compile_graph(*cpu.compute.backend, graph_of(resnet(50)), 2),
                      three = compile_graph(*cpu.compute.backend, graph_of(resnet(50)), 3);
  const int n = int(three.graph.nodes.size());
  std::size_t saved = 0;
  for (int i = 0; i < n; ++i) {
    const Node& conv = three.graph.nodes[std::size_t(i)];
    if (conv.affine < 0 || conv.norm < 0) continue;
    const Node& norm = three.graph.nodes[std::size_t(conv.norm)];
    const std::string result = three.graph.values[std::size_t(norm.dst)].name;
    EXPECT_TRUE(has_region(two, result));
    EXPECT_FALSE(has_region(three, result)) << result;
    EXPECT_TRUE(has_region(two, result + ".diff")) << result;
    const int before = three.graph.producer(norm.src[0]);
    EXPECT_EQ(three.diff_region[std::size_t(norm.dst)], three.diff_region[std::size_t(norm.src[0])]) << result;
    EXPECT_TRUE(std::get<ConvSpec>(three.graph.nodes[std::size_t(before)].spec).normalises_diff_dst) << result;
    EXPECT_TRUE(has_region(three, norm.name + ".affine")) << result;
    EXPECT_TRUE(has_region(three, norm.name + ".diff_affine")) << result;
    const Region& affine = three.plan.regions[std::size_t(three.value_region[std::size_t(conv.affine)])];
    EXPECT_LT(affine.first, i);
    EXPECT_EQ(affine.last, 2 * n - 1 - i) << "the gradient of the weight reads it";
    const Region& x = three.plan.regions[std::size_t(three.value_region[std::size_t(norm.src[0])])];
    EXPECT_GE(x.last, 2 * n - 1 - before);
    saved += std::size_t(three.graph.values[std::size_t(norm.dst)].shape.count()) * sizeof(float);
  }
  // All these results would be alive when the backward pass begins. Workspace of the CPU takes a part of what is saved.
  EXPECT_LT(three.plan.arena_bytes + saved / 2, two.plan.arena_bytes);
}

TEST(NormaliseInConvs, OtherReadersAndOperationsKeepTheResult) {
  const CpuContext cpu;
  const auto count = [&](std::vector<std::string> lines) {
    lines.insert(lines.begin(), {"conv 8 3 pad=same", "batchnorm"});
    lines.insert(lines.end(), {"globalpool", "linear outputs"});
    return normalised(compile_graph(*cpu.compute.backend, graph_of(layers(lines)), 3).graph);
  };
  EXPECT_EQ(count({"relu", "conv 8 3 pad=same"}), 1);
  EXPECT_EQ(count({"relu", "conv 8 3 pad=same bias=on"}), 1);
  EXPECT_EQ(count({"conv 8 3 pad=same"}), 0) << "no relu";
  EXPECT_EQ(count({"tanh", "conv 8 3 pad=same"}), 0);
  EXPECT_EQ(count({"relu", "maxpool 2"}), 0);
  EXPECT_EQ(count({"relu as=x", "conv 8 3 pad=same", "batchnorm", "add x"}), 0) << "two readers";
}

// What the backend refuses stays at level 2, with the reason.
TEST(NormaliseInConvs, RefusedConvolutionsReadTheResultAndAreNoted) {
  struct Refusing : ForwardingBackend {
    using ForwardingBackend::ForwardingBackend;
    std::string why_not_fused(const Spec& spec) override {
      const auto* conv = std::get_if<ConvSpec>(&spec);
      if (conv && conv->normalises_diff_dst && !conv->accumulates_diff_src)
        return conv->out_channels == 16 ? "without gradient" : "";
      if (!conv || !conv->normalises_src) return inner.why_not_fused(spec);
      EXPECT_TRUE(conv->produces_sums && conv->produces_diff_sums) << "asked with all that it computes";
      return conv->src[-1] == 16 ? "too slow" : "";
    }
  };
  const CpuContext cpu;
  Refusing backend(*cpu.compute.backend);
  const CompiledGraph three = compile_graph(backend, graph_of(resnet(8)), 3);
  EXPECT_EQ(count_fused(three.graph, &ConvSpec::produces_diff_sums), 3);
  EXPECT_EQ(normalised(three.graph), 2);
  EXPECT_EQ(count_fused(three.graph, &ConvSpec::normalises_diff_dst), 2);
  EXPECT_EQ(std::ranges::count_if(three.notes, [](const std::string& n) { return n.ends_with("(without gradient)"); }),
            1);
  const auto is_note = [](const std::string& n) { return n.find("its result is stored, not computed by") != n.npos; };
  ASSERT_EQ(std::ranges::count_if(three.notes, is_note), 1);
  EXPECT_TRUE(std::ranges::find_if(three.notes, is_note)->ends_with(" (too slow)"));
}

// Blocks as of MobileNetV2, on images that are large enough for the fusions of the CPU to pay.
struct Bench : CpuContext, ProgramFixture {
  Bench(int level, DType dtype)
      : ProgramFixture(*compute.device, *compute.backend,
                       layers({"conv 16 3 pad=1",
                               "batchnorm",
                               "relu6",
                               "conv 64 1",
                               "batchnorm",
                               "relu6",
                               "conv 64 3 pad=1 groups=64",
                               "batchnorm",
                               "relu6",
                               "conv 16 1",
                               "batchnorm as=x",
                               "conv 48 1",
                               "batchnorm",
                               "relu",
                               "conv 48 3 pad=1 groups=48 stride=2",
                               "batchnorm",
                               "relu",
                               "conv 16 1",
                               "batchnorm",
                               "globalpool",
                               "linear outputs"}),
                       8, {96, 88, 3}, level, dtype) {}
};

TEST(NormaliseInConvs, WithoutALevelTheCpuFusesWhatPays) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const CpuContext cpu;
    if (dtype == DType::bf16 && !cpu::batch_norm::has_bf16_kernels()) continue;
    Bench plain(1, dtype), fused(-1, dtype);
    const Graph& graph = fused.program->graph();
    EXPECT_EQ(count_fused(graph, &ConvSpec::produces_sums), 5);
    EXPECT_EQ(normalised(graph), 4);
    EXPECT_EQ(count_fused(graph, &ConvSpec::normalises_diff_dst), 3);
    EXPECT_FALSE(std::get<ConvSpec>(graph.nodes[1].spec).produces_sums) << "the first convolution has nine taps";
    EXPECT_TRUE(fused.notes.empty());
    for (const bool first : {true, false}) {
      const double a = plain.run(first), b = fused.run(first);
      EXPECT_NEAR(a, b, (dtype == DType::f32 ? 1e-6 : 2e-3) * std::abs(a));
      EXPECT_LT(relative_error(fused.gradient, plain.gradient), dtype == DType::f32 ? 1e-4 : 0.1);
      EXPECT_LT(relative_error(fused.stats, plain.stats), dtype == DType::f32 ? 1e-6 : 1e-2);
    }
    EXPECT_LT(fused.program->plan().arena_bytes, plain.program->plan().arena_bytes);
  }
}

TEST(NormaliseInConvs, InferenceIsUnchanged) {
  const CpuContext cpu;
  const CompiledGraph three = compile_graph(*cpu.compute.backend, graph_of(resnet(8), Mode::infer), 3);
  EXPECT_EQ(normalised(three.graph), 0);
}

}  // namespace normalise_in_convs_test
}  // namespace millrace
