#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace program_test {

using namespace test;

struct Bench : CpuContext, ProgramFixture {
  Bench(const ModelSpec& spec, std::int64_t rows, const Shape& sample, int fusion)
      : ProgramFixture(*compute.device, *compute.backend, spec, rows, sample, fusion) {}
};

ModelSpec small_resnet() {
  ModelSpec spec;
  spec.name = "resnet";
  spec.depth = 8;
  spec.width = 4;
  spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  return spec;
}

class ProgramAtLevel : public ::testing::TestWithParam<int> {};

TEST_P(ProgramAtLevel, LossGradientAndStatisticsMatchLevelZero) {
  for (const std::int64_t depth : {8, 50}) {
    ModelSpec spec = small_resnet();
    spec.depth = depth;
    Bench plain(spec, 5, {12, 10, 3}, 0), fused(spec, 5, {12, 10, 3}, GetParam());
    for (const bool first : {true, false}) {
      const double a = plain.run(first), b = fused.run(first);
      EXPECT_NEAR(a, b, 1e-5 * std::abs(a));
      // The norms sum in another order. The 16 blocks of depth 50, with norms over few values, amplify the difference.
      EXPECT_LT(relative_error(fused.gradient, plain.gradient), depth == 8 ? 1e-4 : 3e-3) << depth;
      EXPECT_LT(relative_error(fused.stats, plain.stats), 1e-5) << depth;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Program, ProgramAtLevel, ::testing::Values(1, 2, 3));

// A node that reads a value twice has two gradients for it, and another reader has a third.
TEST(Program, GradientsOfAValueThatANodeReadsTwiceAreAddedUp) {
  ModelSpec spec;
  spec.name = "layers";
  spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  spec.layers = {"conv 8 3 pad=same as=c", "residual {", "residual {", "batchnorm",     "}",
                 "conv 8 3 pad=same",      "}",          "globalpool", "linear outputs"};
  Bench plain(spec, 5, {12, 10, 3}, 0), fused(spec, 5, {12, 10, 3}, 1);
  EXPECT_NEAR(fused.run(), plain.run(), 1e-5);
  EXPECT_LT(relative_error(fused.gradient, plain.gradient), 1e-4);
  // concat a a, with a further reader, is a product of the two halves of the next weights.
  ModelSpec twice = spec, once = spec;
  twice.layers = {"conv 8 3 pad=same as=a", "concat a", "conv 8 1 as=b", "add a", "globalpool", "linear outputs"};
  once.layers = {"conv 8 3 pad=same as=a", "conv 8 1 as=b", "add a", "globalpool", "linear outputs"};
  Bench two(twice, 5, {12, 10, 3}, 0), one(once, 5, {12, 10, 3}, 0);
  const auto slot = [](const Bench& bench, const std::string& name) {
    const auto& parameters = bench.program->graph().parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (parameters[p].name == name) return bench.layout->parameters[p];
    throw std::runtime_error(name);
  };
  for (const Parameter& p : one.program->graph().parameters) {
    const auto from = slot(one, p.name), to = slot(two, p.name);
    for (std::int64_t i = 0; i < from.count; ++i)
      if (p.name != "b.weight")
        two.master[std::size_t(to.begin + i)] = one.master[std::size_t(from.begin + i)];
      else  // half of each weight for each half
        for (const std::int64_t half : {0, 8})
          two.master[std::size_t(to.begin + i / 8 * 16 + half + i % 8)] =
              0.5f * one.master[std::size_t(from.begin + i)];
  }
  EXPECT_NEAR(two.run(), one.run(), 1e-5);
  const auto a = slot(one, "a.weight"), b = slot(two, "a.weight");
  const auto part = [](const Bench& bench, const auto& s) {
    return std::vector<float>(bench.gradient.begin() + s.begin, bench.gradient.begin() + s.begin + s.count);
  };
  EXPECT_LT(relative_error(part(two, b), part(one, a)), 1e-5);
}

TEST(Program, LevelOneFoldsNodes) {
  Bench plain(small_resnet(), 5, {12, 10, 3}, 0), fused(small_resnet(), 5, {12, 10, 3}, 1);
  EXPECT_GT(plain.program->graph().nodes.size(), fused.program->graph().nodes.size() + 8);
  EXPECT_EQ(count_fused(fused.program->graph(), &ConvSpec::produces_sums), 0);
}

// Every norm of a resnet follows a convolution. The first norm of a block (the first two of a bottleneck) also precedes
// one.
TEST(Program, ConvolutionsComputeTheSumsOfNormsAtLevelTwo) {
  for (const auto& [depth, convs, inner] : {std::tuple{8, 9, 3}, std::tuple{50, 53, 32}}) {
    ModelSpec spec = small_resnet();
    spec.depth = depth;
    Bench bench(spec, 2, {8, 8, 3}, 2);
    EXPECT_EQ(count_fused(bench.program->graph(), &ConvSpec::produces_sums), convs);
    EXPECT_EQ(count_fused(bench.program->graph(), &ConvSpec::produces_diff_sums), inner);
  }
}

TEST(Program, GradientMatchesFiniteDifferences) {
  ModelSpec spec = small_resnet();
  Bench bench(spec, 4, {8, 8, 1}, 2);
  bench.run();
  const std::vector<float> gradient = bench.gradient;
  // Along random directions, because for a single weight the difference would be smaller than the noise of float32.
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const std::vector<float> start = bench.master;
  for (int trial = 0; trial < 3; ++trial) {
    std::vector<float> direction(start.size());
    double expected = 0;
    for (std::size_t p = 0; p < bench.layout->parameters.size(); ++p)
      for (std::int64_t i = 0; i < bench.layout->parameters[p].count; ++i) {
        const std::size_t at = std::size_t(bench.layout->parameters[p].begin + i);
        direction[at] = normal(random) / 30;
        expected += double(direction[at]) * double(gradient[at]);
      }
    const float h = 2e-3f;
    double loss[2];
    for (int side = 0; side < 2; ++side) {
      for (std::size_t i = 0; i < start.size(); ++i) bench.master[i] = start[i] + (side ? -h : h) * direction[i];
      loss[side] = bench.run();
    }
    const double found = (loss[0] - loss[1]) / (2 * double(h));
    EXPECT_NEAR(found, expected, 0.05 * std::abs(expected) + 2e-3) << trial;
  }
}

TEST(Program, SecondMicroBatchAddsToTheFirst) {
  Bench bench(small_resnet(), 3, {9, 7, 2}, 2);
  bench.run(true);
  const std::vector<float> once = bench.gradient, stats = bench.stats;
  bench.run(false);
  for (std::size_t i = 0; i < once.size(); ++i)
    EXPECT_NEAR(bench.gradient[i], 2 * once[i], 1e-6 + 1e-5 * std::abs(once[i]));
  for (std::size_t i = 0; i < stats.size(); ++i)
    EXPECT_NEAR(bench.stats[i], 2 * stats[i], 1e-6 + 1e-5 * std::abs(stats[i]));
}

TEST(Program, EveryGradientElementIsReportedReadyOnceFromTheEnd) {
  struct Sink : GradReadyHook {
    std::vector<int> seen;
    std::int64_t first_begin = -1;
    void on_gradient_ready(std::int64_t begin, std::int64_t end) override {
      if (first_begin < 0) first_begin = begin;
      for (auto i = begin; i < end; ++i) ++seen[std::size_t(i)];
    }
  } sink;
  Bench bench(small_resnet(), 2, {8, 8, 3}, 1);
  sink.seen.resize(bench.gradient.size());
  bench.run(true, &sink);
  EXPECT_EQ(std::count(sink.seen.begin(), sink.seen.end(), 1), std::int64_t(sink.seen.size()));
  EXPECT_GT(sink.first_begin, std::int64_t(sink.seen.size()) * 9 / 10 - 64);
}

// There is one note for each refused fusion.
TEST(CompileGraph, RefusedFusionsLeaveTheGraphUnchangedAndAreNoted) {
  struct Refusing : ForwardingBackend {
    using ForwardingBackend::ForwardingBackend;
    std::string why_not_fused(const Spec& spec) override {
      const ConvSpec& s = std::get<ConvSpec>(spec);
      return s.produces_sums && s.src[-1] == 3 ? "three channels" : s.produces_sums ? "" : "no";
    }
  };
  const CpuContext cpu;
  Refusing backend(*cpu.compute.backend);
  const Graph graph = build_model(small_resnet(), {2, {8, 8, 3}, DType::u8, {}, true}, DType::f32, Mode::train);
  const CompiledGraph two = compile_graph(backend, graph, 2), usual = compile_graph(backend, graph, -1),
                      high = compile_graph(backend, graph, 7);
  EXPECT_EQ(count_fused(two.graph, &ConvSpec::produces_sums), 8);
  EXPECT_EQ(count_fused(two.graph, &ConvSpec::produces_diff_sums), 0);
  ASSERT_EQ(two.notes.size(), 1u + 3u + 1u);
  EXPECT_EQ(two.notes[0], "bn1: sums are not fused into conv1 (three channels)");
  EXPECT_EQ(usual.fusion_level, 1);
  EXPECT_EQ(usual.notes, std::vector<std::string>{
                             "3 gradients of tensors with several readers are added by passes of their own (no)"});
  EXPECT_EQ(high.fusion_level, 3);
  EXPECT_EQ(high.notes.front(), "fusion level 7 is not supported. level 3 is used");
  EXPECT_LT(two.cost().bytes, usual.cost().bytes);
}

TEST(CompileGraph, TheCpuDoesNotFuseLinearLayersAndNotesIt) {
  ModelSpec spec;
  spec.name = "mlp";
  spec.hidden = {16, 8};
  spec.activation = Activation::gelu_tanh;
  const CpuContext cpu;
  const Graph graph = build_model(spec, {2, {8, 8, 3}, DType::u8, {}, true}, DType::f32, Mode::train);
  const CompiledGraph two = compile_graph(*cpu.compute.backend, graph, 2);
  EXPECT_EQ(count_fused(two.graph, &LinearSpec::consumes_diff_pre), 0);
  ASSERT_EQ(two.notes.size(), 2u);
  EXPECT_EQ(two.notes[0],
            "fc1: the gradient of gelu_tanh is not fused into fc2 (oneDNN's matmul cannot fuse the gradient of an "
            "activation)");
}

TEST(CompileGraph, ImagesArePaddedWithTheZeroChannelsThatTheBackendRequests) {
  struct Padding : ForwardingBackend {
    using ForwardingBackend::ForwardingBackend;
    std::int64_t padded_channels(const ConvSpec& s) override { return asked = 8 - s.src[-1]; }
    std::int64_t asked = 0;
  };
  const CpuContext cpu;
  Padding backend(*cpu.compute.backend);
  compile_graph(backend, build_model(small_resnet(), {5, {12, 10, 3}, DType::u8, {}, true}, DType::f32, Mode::train),
                0);
  EXPECT_EQ(backend.asked, 0);
  for (const MixOptions& mix : {MixOptions{}, MixOptions{0.5f, 0}, MixOptions{0, 1}}) {
    ModelSpec spec = small_resnet();
    spec.mix = mix;
    Bench usual(spec, 5, {12, 10, 3}, 1);
    ProgramFixture wide(backend.device(), backend, spec, 5, {12, 10, 3}, 1);
    EXPECT_EQ(backend.asked, 5);
    const Graph& graph = wide.program->graph();
    EXPECT_EQ(graph.values[std::size_t(graph.nodes[0].dst)].shape, (Shape{5, 12, 10, 8}));
    EXPECT_EQ(std::holds_alternative<MixSpec>(graph.nodes[1].spec), mix.on());
    for (const bool first : {true, false}) {
      EXPECT_EQ(wide.run(first), usual.run(first));
      EXPECT_EQ(wide.gradient, usual.gradient);
      EXPECT_EQ(wide.stats, usual.stats);
    }
  }
}

TEST(CompileGraph, LevelTwoDoesNotChangeInference) {
  const CpuContext cpu;
  const Graph graph = build_model(small_resnet(), {2, {8, 8, 3}, DType::u8, {}, true}, DType::f32, Mode::infer);
  const CompiledGraph one = compile_graph(*cpu.compute.backend, graph, 1),
                      two = compile_graph(*cpu.compute.backend, graph, 2);
  EXPECT_EQ(two.plan.arena_bytes, one.plan.arena_bytes);
  EXPECT_EQ(count_fused(two.graph, &ConvSpec::produces_sums), 0);
}

TEST(MemoryPlan, RegionsInUseAtTheSameTimeNeverOverlap) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<Region> regions;
    std::size_t together = 0;
    for (int r = 0; r < 40; ++r) {
      const int first = int(random() % 50), last = first + int(random() % 20);
      regions.push_back({"r", 64 * (1 + random() % 100), 0, first, last});
      together += regions.back().bytes;
    }
    const std::size_t total = place_regions(regions);
    EXPECT_LE(total, together);
    for (std::size_t a = 0; a < regions.size(); ++a) {
      EXPECT_LE(regions[a].offset + regions[a].bytes, total);
      for (std::size_t b = 0; b < a; ++b) {
        const Region &p = regions[a], &q = regions[b];
        const bool together_alive = p.first <= q.last && q.first <= p.last;
        EXPECT_TRUE(!together_alive || p.offset + p.bytes <= q.offset || q.offset + q.bytes <= p.offset);
      }
    }
  }
}

}  // namespace program_test
}  // namespace millrace
