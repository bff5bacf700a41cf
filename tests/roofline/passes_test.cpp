// The passes of tiny networks, counted by hand.
#include "millrace/roofline/passes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "roofline/counted_passes.hpp"
#include "roofline/networks.hpp"

namespace millrace::roofline {
namespace passes_test {

using enum PassKind;

constexpr batch_norm::OnChipMemory h200 = {132, 228 << 10};  // holds the tensors of all networks here

constexpr Phase forward = Phase::forward, backward = Phase::backward;

// Batch of 2 images of 4x4x8, fp16. Every tensor between the layers has 2 * 4 * 4 * 8 = 256 values, so 512 bytes; a bit
// for each is 32 bytes. The weight of a 3x3 convolution has 8 * 9 * 8 = 576 values.
const std::vector<std::string> two_convs = {"conv 8 3 pad=same", "batchnorm",  "relu",
                                            "conv 8 3 pad=same", "globalpool", "linear outputs"};
constexpr double T = 512, W = 2 * 576, G = 4 * 576, bits = 32, conv_flops = 2.0 * 256 * 72;

TEST(Passes, LevelOneOfAConvolutionWithNorm) {
  const auto passes = counted(layers(two_convs, {4, 4, 8}, DType::f16, 2, 10), 1);
  const double head_in = 2 * 8 * 2, head_out = 2 * 10 * 2, head_weight = 80, head_flops = 2.0 * 2 * 8 * 10;
  const std::vector<Counted> expected = {
      {input, forward, 256 + T, 0, 1},
      {conv_forward, forward, T + W + T, conv_flops, 1},
      {norm_statistics, forward, T, 0, 1},
      {norm_apply, forward, 2 * T + bits, 0, 1},
      {conv_forward, forward, T + W + T, conv_flops, 1},
      {pool, forward, T + head_in, 0, 1},
      {linear_forward, forward, head_in + 2 * head_weight + head_out, head_flops, 1},
      {loss, forward, 2 * head_out + 2 * 4, 0, 2},
      {linear_weight_gradient, backward, head_in + head_out + 4 * head_weight, head_flops, 1},
      {bias, backward, head_out, 0, 1},  // 2 rows are not a multiple of 8, so it is a pass of its own
      {linear_data_gradient, backward, head_out + 2 * head_weight + head_in, head_flops, 1},
      {pool, backward, T + head_in, 0, 1},
      {conv_weight_gradient, backward, 2 * T + W, conv_flops, 1},
      {weights, backward, W + G, 0, 1},
      {conv_data_gradient, backward, 2 * T + W, conv_flops, 1},
      {norm_gradient_sums, backward, 2 * T + bits, 0, 1},
      {norm_gradient_apply, backward, 3 * T + bits, 0, 1},
      {conv_weight_gradient, backward, 2 * T + W, conv_flops, 1},
      {weights, backward, W + G, 0, 1}};  // the first convolution has no data gradient
  EXPECT_EQ(passes, expected);
}

TEST(Passes, LevelZeroAppliesReluInAPassOfItsOwn) {
  const Graph graph = layers(two_convs, {4, 4, 8}, DType::f16, 2, 10);
  std::vector<Counted> expected;
  for (const Counted& pass : counted(graph, 1)) {
    expected.push_back(pass);
    Counted& last = expected.back();
    if (pass.kind == norm_gradient_sums) {
      last = {activation, backward, 3 * T, 0, 1};
      expected.push_back({norm_gradient_sums, backward, 2 * T, 0, 1});
    }
    if (pass.kind == norm_apply) {
      last.bytes -= bits;
      expected.push_back({activation, forward, 2 * T, 0, 1});
    }
    if (pass.kind == norm_gradient_apply) last.bytes -= bits;
  }
  EXPECT_EQ(counted(graph, 0), expected);
}

// The first convolution computes the sums of the norm, the second one those of its gradient.
TEST(Passes, LevelTwoMovesTheSumsIntoTheConvolutions) {
  const Graph graph = layers(two_convs, {4, 4, 8}, DType::f16, 2, 10);
  std::vector<Counted> expected = counted(graph, 1);
  for (Counted& pass : expected) {
    if (pass.kind == norm_statistics || pass.kind == norm_gradient_sums) pass = {pass.kind, pass.phase, 0, 0, 1};
    if (pass.kind == norm_apply || pass.kind == norm_gradient_apply) pass.bytes -= bits;
    if (pass.kind == conv_data_gradient) pass.bytes += T;
  }
  EXPECT_EQ(counted(graph, 2), expected);
  EXPECT_EQ(counted(graph, 3), expected) << "the second convolution computes no sums, as an H200 would need";
  // cuDNN has no such engines for other types.
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Graph other = layers(two_convs, {4, 4, 8}, dtype, 2, 10);
    EXPECT_EQ(counted(other, 2), counted(other, 1)) << name_of(dtype);
  }
}

// Between two norms, the first one is applied by the convolution behind it. That reads and writes as many bytes as
// before.
TEST(Passes, LevelThreeDoesNotStoreTheResultOfANorm) {
  const Graph graph = layers({"conv 8 3 pad=same", "batchnorm", "relu", "conv 8 3 pad=same", "batchnorm", "relu",
                              "globalpool", "linear outputs"},
                             {4, 4, 8}, DType::f16, 2, 10);
  std::vector<Counted> expected = counted(graph, 2);
  const auto apply = std::ranges::find(expected, norm_apply, &Counted::kind);
  EXPECT_EQ(*apply, (Counted{norm_apply, forward, 2 * T, 0, 1}));
  expected.erase(apply);
  EXPECT_EQ(counted(graph, 3), expected);
}

TEST(Passes, LaterMicroBatchesAddToTheGradient) {
  const Graph graph = layers(two_convs, {4, 4, 8}, DType::f16, 2, 10);
  std::vector<Counted> expected = counted(graph, 1);
  for (Counted& pass : expected) {
    if (pass.kind == weights) pass.bytes += G;
    if (pass.kind == linear_weight_gradient) pass.bytes += 4 * 80;
  }
  EXPECT_EQ(counted(graph, 1, false), expected);
}

TEST(Passes, Float32WritesWeightGradientsItself) {
  for (const Counted& pass : counted(layers(two_convs, {4, 4, 8}, DType::f32, 2, 10), 1)) {
    EXPECT_NE(pass.kind, weights);
    if (pass.kind == conv_weight_gradient) {
      EXPECT_EQ(pass.bytes, 2 * 2 * T + G);
    }
  }
}

// A residual block: x has two readers, so one of two gradients is added to the other. At level 0 that is a pass; from
// level 1 the convolution reads what the norm wrote.
TEST(Passes, ConvolutionsAddToTheGradientsOfSharedTensors) {
  const std::vector<std::string> block = {
      "conv 8 3 pad=same as=x", "conv 8 3 pad=same", "batchnorm", "add x", "relu", "globalpool", "linear outputs"};
  const Graph graph = layers(block, {4, 4, 8}, DType::f16, 2, 10);
  const auto of = [](const std::vector<Counted>& passes, PassKind kind) {
    std::vector<Counted> out;
    std::copy_if(passes.begin(), passes.end(), std::back_inserter(out),
                 [=](const Counted& p) { return p.kind == kind; });
    return out;
  };
  const auto level0 = counted(graph, 0), level1 = counted(graph, 1);
  EXPECT_EQ(of(level0, add), (std::vector<Counted>{{add, forward, 3 * T, 0, 1}}));
  EXPECT_EQ(of(level1, norm_apply), (std::vector<Counted>{{norm_apply, forward, 3 * T + bits, 0, 1}}));
  EXPECT_EQ(of(level1, norm_gradient_apply),
            (std::vector<Counted>{{norm_gradient_apply, backward, 4 * T + bits, 0, 1}}));
  EXPECT_EQ(of(level0, gradient_add), (std::vector<Counted>{{gradient_add, backward, 3 * T, 0, 1}}));
  EXPECT_EQ(of(level0, conv_data_gradient),
            (std::vector<Counted>{{conv_data_gradient, backward, 2 * T + W, conv_flops, 1}}));
  EXPECT_TRUE(of(level1, gradient_add).empty());
  EXPECT_EQ(of(level1, conv_data_gradient),
            (std::vector<Counted>{{conv_data_gradient, backward, 3 * T + W, conv_flops, 1}}));
}

// relu(norm(x) + norm2(y)). From level 1 the passes over both sources are one, but for the statistics.
TEST(Passes, TheNormOfAProjectionSharesThePassesOfTheNormThatAddsIt) {
  const std::vector<std::string> block = {"conv 8 3 pad=same",
                                          "relu as=x",
                                          "conv 8 3 pad=same",
                                          "batchnorm as=a",
                                          "conv 8 1 from=x",
                                          "batchnorm",
                                          "add a",
                                          "relu",
                                          "globalpool",
                                          "linear outputs"};
  const Graph graph = layers(block, {4, 4, 8}, DType::f16, 2, 10);
  const auto norms = [&](int level) {
    std::vector<Counted> out;
    for (const Counted& p : counted(graph, level))
      if (p.kind == norm_statistics || p.kind == norm_apply || p.kind == norm_gradient_sums ||
          p.kind == norm_gradient_apply)
        out.push_back(p);
    return out;
  };
  std::vector<Counted> expected = {{norm_statistics, forward, T, 0, 1},
                                   {norm_statistics, forward, T, 0, 1},
                                   {norm_apply, forward, 3 * T + bits, 0, 1},
                                   {norm_gradient_sums, backward, 3 * T + bits, 0, 1},
                                   {norm_gradient_apply, backward, 5 * T + bits, 0, 1}};
  EXPECT_EQ(norms(1), expected);
  EXPECT_EQ(counted(graph, 1, true, h200), counted(graph, 1)) << "merged norms keep nothing on the chip";
  expected[0] = expected[1] = {norm_statistics, forward, 0, 0, 1};  // by the convolutions
  EXPECT_EQ(norms(2), expected);
}

// maxpool(relu(norm(x))). The normalised tensor is not stored, and neither is its gradient: the pool keeps a value and
// a byte for each of its 64 results.
TEST(Passes, AMaxPoolIsPartOfTheNormBeforeIt) {
  const std::vector<std::string> stem = {"conv 8 3 pad=same", "batchnorm",  "relu",          "maxpool 2",
                                         "conv 8 1",          "globalpool", "linear outputs"};
  const Graph graph = layers(stem, {4, 4, 8}, DType::f16, 2, 10);
  const auto passes = counted(graph, 1);
  EXPECT_EQ(counted(graph, 1, true, h200), passes);
  const double quarter = T / 4, kept = quarter + 64;
  const std::vector<Counted> expected = {{norm_statistics, forward, T, 0, 1},
                                         {norm_apply, forward, T + quarter + kept, 0, 1},
                                         {norm_gradient_sums, backward, quarter + kept, 0, 1},
                                         {norm_gradient_apply, backward, quarter + 64 + 2 * T, 0, 1}};
  std::vector<Counted> found;
  int pools = 0;
  for (const Counted& p : passes) {
    pools += p.kind == pool;
    if (std::any_of(expected.begin(), expected.end(), [&](const Counted& e) { return e.kind == p.kind; }))
      found.push_back(p);
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(pools, 2);  // of the global pool
}

// Images of 3 channels: at level 1 the input pass writes five more channels of zeros; at level 0 the convolution copies
// the images, twice.
TEST(Passes, NarrowImagesArePadded) {
  const std::vector<std::string> stem = {"conv 8 3 pad=same", "globalpool", "linear outputs"};
  const Graph graph = layers(stem, {4, 4, 3}, DType::f16, 2, 10);
  const double image = 2 * 16 * 3, own = 2 * image, wide = 2 * 2 * 16 * 8, weight = 2 * 8 * 9 * 8;
  const auto level0 = counted(graph, 0), level1 = counted(graph, 1);
  EXPECT_EQ(level0[0], (Counted{input, forward, image + own, 0, 1}));
  EXPECT_EQ(level0[1], (Counted{padding, forward, own + wide, 0, 1}));
  EXPECT_EQ(level1[0], (Counted{input, forward, image + wide, 0, 1}));
  const Counted conv{conv_forward, forward, wide + weight + T, 2.0 * 256 * 27, 1};
  EXPECT_EQ(level0[2], conv);
  EXPECT_EQ(level1[1], conv);
  CudaFusionRules rules;
  const auto copies = repack_passes(pad_channels(graph, rules));
  ASSERT_EQ(copies.size(), 2u);  // the padded weight and the 16-bit bias of the linear layer
  EXPECT_EQ(copies[0].bytes, 2 * 8 * 9 * 3 + weight);
}

// Two linear layers of 16 features, batch 8, bf16. A tensor has 128 values, a weight 256.
TEST(Passes, LinearLayersShareTheirGradientsAtLevelTwo) {
  const Graph graph = layers({"linear 16", "relu", "linear 16", "linear outputs"}, {16}, DType::bf16, 8, 16);
  const double t = 2 * 128, w = 2 * 256, g = 4 * 256, flops = 2.0 * 8 * 16 * 16;
  const Counted product{linear_forward, forward, 2 * t + w, flops, 1};
  const Counted weight_gradient{linear_weight_gradient, backward, 2 * t + g, flops, 1};
  const Counted data_gradient{linear_data_gradient, backward, 2 * t + w, flops, 1};
  const Counted first{input, forward, 128 + t, 0, 1}, last{loss, forward, 2 * t + 8 * 4, 0, 2};
  const Counted mask{activation, backward, 3 * t, 0, 1};
  const std::vector<Counted> level1 = {first,           product,       product,         product,       last,
                                       weight_gradient, data_gradient, weight_gradient, data_gradient, mask,
                                       weight_gradient};
  EXPECT_EQ(counted(graph, 1), level1);
  std::vector<Counted> level2 = level1;
  level2[1].bytes += 128 / 8;  // the bits of the ReLU, written and read
  level2[8].bytes += 128 / 8;
  level2[9] = weight_gradient;
  level2[10] = {bias, backward, 0, 0, 1};  // of the first layer, from the second
  EXPECT_EQ(counted(graph, 2), level2);
}

TEST(Passes, OptimizersReadAndWriteTheirMoments) {
  OptimizerSpec spec;
  spec.count = 4096;
  spec.segments = {{0, 4096, 0}};
  spec.weight_dtype = DType::f16;
  const auto bytes = [&] {
    double sum = 0;
    for (const Pass& pass : optimizer_passes(spec)) sum += pass.bytes;
    return sum / 4096;
  };
  using Kind = OptimizerSpec::Kind;
  EXPECT_EQ(bytes(), 4 + 12 + 8 + 2);  // gradient; weight, gradient, moment; weight, moment; 16-bit weight
  spec.weight_dtype = DType::f32;
  EXPECT_EQ(bytes(), 4 + 12 + 8);
  spec.momentum = 0;
  EXPECT_EQ(bytes(), 4 + 8 + 4);
  spec.momentum = 0.9f;
  spec.kind = Kind::lars;
  EXPECT_EQ(bytes(), 8 + 12 + 8);
  spec.kind = Kind::adamw;
  EXPECT_EQ(bytes(), 4 + 16 + 12);
  spec.kind = Kind::lamb;
  EXPECT_EQ(bytes(), 4 + 16 + 8 + 12 + 4);
  spec.shards = {{0, 4096}};
  spec.count = 8192;
  spec.segments = {{0, 8192, 0}};  // the other half belongs to another rank
  EXPECT_EQ(bytes(), 4 + 16 + 8 + 12 + 4);
}

TEST(Passes, DropoutPoolsAndActivationsKeepWhatTheirGradientsNeed) {
  const Graph graph = layers({"conv 8 3 pad=same", "tanh", "maxpool 2", "dropout 0.5", "globalpool", "linear outputs"},
                             {4, 4, 8}, DType::f16, 2, 10);
  std::map<PassKind, double> forwards, backwards;
  for (const Counted& pass : counted(graph, 1)) (pass.phase == forward ? forwards : backwards)[pass.kind] += pass.bytes;
  const double quarter = T / 4, positions = 64, mask = quarter / 16, features = 2 * 8 * 2;
  EXPECT_EQ(forwards[activation], 2 * T);
  EXPECT_EQ(backwards[activation], 3 * T);
  EXPECT_EQ(forwards[pool], T + quarter + positions + quarter + features);
  EXPECT_EQ(backwards[pool], forwards[pool]);
  EXPECT_EQ(forwards[dropout], 2 * quarter + mask);
  EXPECT_EQ(backwards[dropout], forwards[dropout]);
}

}  // namespace passes_test
}  // namespace millrace::roofline
