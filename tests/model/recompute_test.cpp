#include "millrace/model/recompute.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace recompute_test {

using namespace test;

struct Bench : CpuContext, ProgramFixture {
  Bench(const ModelSpec& spec, const ModelBatch& batch, int fusion, Recompute recompute, DType dtype = DType::f32)
      : ProgramFixture(*compute.device, *compute.backend, spec, batch, fusion, dtype,
                       [=](Graph& graph) { graph.recompute = recompute; }) {}
};

struct Network {
  const char* name;
  bool transformer;
  ModelSpec spec;
  ModelBatch batch;
};

ModelSpec images(const std::string& name) {
  ModelSpec spec;
  spec.name = name;
  spec.outputs = 10;
  spec.input.scale = 1 / 255.0f;
  return spec;
}

Network gpt2() {
  ModelSpec spec = images("gpt2");
  spec.size = "tiny";
  spec.blocks = 6;
  spec.width = 32;
  spec.heads = 2;
  spec.dropout = 0.1f;
  spec.attention_dropout = 0.2f;
  spec.separator = 7;
  spec.tokens = true;
  spec.outputs = 256;
  return {"gpt2", true, spec, {2, {24}, DType::u8, {24}, true}};
}

std::vector<Network> networks() {
  ModelSpec resnet = images("resnet");
  resnet.depth = 14;
  resnet.width = 4;
  ModelSpec vit = images("vit");
  vit.blocks = 3;
  vit.width = 24;
  vit.heads = 3;
  vit.patch = 4;
  vit.drop_path = 0.2;
  ModelSpec skips = images("layers");  // a value that is read far behind
  skips.layers = {"conv 8 3 pad=same",  "batchnorm",     "relu as=top",       "maxpool 2",
                  "conv 16 3 pad=same", "silu",          "upsample 2",        "concat top",
                  "conv 8 3 pad=same",  "gelu",          "conv 8 3 pad=same", "dropout 0.3",
                  "globalpool",         "linear outputs"};
  ModelSpec volumes = images("layers");  // reshapes, which share memory with their sources
  volumes.layers = {"conv 8 3 stride=2 pad=same",
                    "groupnorm 2",
                    "relu",
                    "convt 8 2 stride=2 bias=on",
                    "instancenorm",
                    "gelu",
                    "se 4",
                    "channels_to_axis",
                    "conv 3 3 bias=on",
                    "axis_to_channels as=a",
                    "conv 8 1",
                    "gelu",
                    "conv 18 1",
                    "add a",
                    "linear outputs"};
  ModelSpec unet = images("unet");
  unet.blocks = 2;
  unet.width = 4;
  unet.input.crop_pad = 2;
  unet.input.flip = true;
  const ModelBatch batch{3, {16, 16, 3}, DType::u8, {}, true}, maps{3, {16, 16, 3}, DType::u8, {16, 16}, true};
  return {{"resnet", false, resnet, batch},   {"vit", true, vit, batch},   {"skips", false, skips, batch},
          {"volumes", false, volumes, batch}, {"unet", false, unet, maps}, gpt2()};
}

class RecomputedNetwork : public ::testing::TestWithParam<std::tuple<Recompute, int>> {};

TEST_P(RecomputedNetwork, HasTheSameBitsAndNeedsLessMemory) {
  const auto [recompute, fusion] = GetParam();
  for (const Network& n : networks()) {
    SCOPED_TRACE(n.name);
    Bench kept(n.spec, n.batch, fusion, Recompute::off), again(n.spec, n.batch, fusion, recompute);
    // With selective, a linear layer and its activation stay apart: the sum of another kernel, so other last bits.
    const bool same_kernels = recompute == Recompute::full || fusion == 0;
    for (const bool first : {true, false}) {
      const double expected = kept.run(first), actual = again.run(first);
      if (same_kernels) {
        EXPECT_EQ(actual, expected);
        EXPECT_EQ(again.gradient, kept.gradient);
      } else {
        EXPECT_NEAR(actual, expected, 1e-5 * expected);
        EXPECT_LT(relative_error(again.gradient, kept.gradient), 1e-4);
      }
      EXPECT_EQ(again.stats, kept.stats);
    }
    // At level 3, the results of norms between convolutions are not stored in any case.
    if (recompute == Recompute::full || fusion < 3) {
      EXPECT_GT(again.program->schedule().recomputed_count(), 0);
    }
    // Of a small convolutional network, few results are more than what is in use at the end of the forward pass anyway.
    const std::size_t kept_bytes = kept.program->plan().arena_bytes;
    EXPECT_TRUE(!n.transformer || again.program->plan().arena_bytes < kept_bytes) << kept_bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, RecomputedNetwork,
                         ::testing::Combine(::testing::Values(Recompute::selective, Recompute::full),
                                            ::testing::Values(0, 1, 3)));

std::size_t arena(Network n, std::int64_t blocks, Recompute recompute) {
  CpuContext cpu;
  n.spec.blocks = blocks;
  Graph graph = build_model(n.spec, n.batch, DType::f32, Mode::train);
  graph.recompute = recompute;
  return compile_graph(*cpu.compute.backend, std::move(graph), -1).plan.arena_bytes;
}

// Each block of GPT-2 keeps 16 times its width, of which norms and the activation are 6 times; with full
// recomputation, it keeps at most its two sums.
TEST(Recompute, MemoryOfABlockIsAsPredicted) {
  const Network n = gpt2();
  const double unit = double(n.batch.rows * 24 * n.spec.width) * sizeof(float);
  const auto by_block = [&](Recompute recompute) {
    return double(arena(n, 40, recompute) - arena(n, 20, recompute)) / 20 / unit;
  };
  const double kept = by_block(Recompute::off), selective = by_block(Recompute::selective);
  EXPECT_NEAR(kept, 16, 2.5);  // and what the operations save
  EXPECT_NEAR(kept - selective, 6, 0.5);
  EXPECT_LT(by_block(Recompute::full), 2.1);
}

TEST(Recompute, EachOperationRunsAtMostOnceMore) {
  Bench bench(gpt2().spec, gpt2().batch, 1, Recompute::full);
  const BackwardSchedule& schedule = bench.program->schedule();
  std::vector<int> again(bench.program->graph().nodes.size(), 0), backward = again;
  for (const BackwardStep& step : schedule.steps)
    ++(step.work == NodeWork::recompute ? again : backward)[std::size_t(step.node)];
  EXPECT_EQ(*std::ranges::max_element(again), 1);
  EXPECT_EQ(*std::ranges::max_element(backward), 1);
  EXPECT_EQ(schedule.steps.front().work, NodeWork::backward);  // the last segment is kept
}

TEST(Recompute, InferenceRecomputesNothing) {
  CpuContext cpu;
  const Network n = gpt2();
  Graph graph = build_model(n.spec, n.batch, DType::f32, Mode::infer);
  graph.recompute = Recompute::full;
  EXPECT_TRUE(compile_graph(*cpu.compute.backend, std::move(graph), -1).schedule.steps.empty());
}

}  // namespace recompute_test
}  // namespace millrace
