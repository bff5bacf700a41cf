#include "reference/conv.hpp"

#include <fmt/core.h>

#include "ops/weighted_op_checks.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace conv_test {

using namespace test;

struct Case {
  const char* name;
  ConvSpec spec;
};

ConvSpec conv(Shape src, std::int64_t out_channels, Window window, std::int64_t groups = 1, bool bias = false) {
  ConvSpec s;
  s.src = src;
  s.out_channels = out_channels;
  s.window = window;
  s.groups = groups;
  s.bias = bias;
  return s;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"odd_3_to_16_stem", conv({2, 13, 11, 3}, 16, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 1, true)},
      {"same_32_to_32", conv({3, 9, 7, 32}, 32, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}})},
      {"stride_2_batch_1",
       conv({1, 15, 12, 16}, 24, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}}, 1, true)},
      {"pointwise_stride_2", conv({2, 8, 8, 16}, 32, {.stride = {2, 2, 1}})},
      {"pointwise_stride_2_few_channels", conv({4, 8, 7, 4}, 8, {.stride = {2, 2, 1}})},
      {"pointwise_32_to_96", conv({2, 9, 8, 32}, 96, {})},          // on AMX: products for both gradients
      {"pointwise_1024_to_1024", conv({1, 1, 2, 1024}, 1024, {})},  // and forward, with large weights
      {"pointwise_uneven_strides", conv({3, 9, 8, 3}, 5, {.stride = {3, 2, 1}}, 1, true)},
      {"uneven_kernel_stride",
       conv({2, 17, 9, 5}, 7, {.kernel = {5, 2, 1}, .stride = {3, 1, 1}, .pad = {2, 0, 0}}, 1, true)},
      {"dilation", conv({2, 14, 15, 8}, 8, {.kernel = {3, 3, 1}, .pad = {2, 3, 0}, .dilation = {2, 3, 1}})},
      {"groups", conv({2, 10, 9, 12}, 18, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 3, true)},
      {"wide_groups", conv({2, 6, 7, 32}, 32, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 2)},
      {"depthwise", conv({2, 11, 10, 24}, 24, {.kernel = {3, 3, 1}, .stride = {2, 1, 1}, .pad = {1, 1, 0}}, 24, true)},
      {"one_dimension",
       conv({3, 41, 6}, 10, {.rank = 1, .kernel = {7, 1, 1}, .stride = {2, 1, 1}, .pad = {3, 0, 0}}, 1, true)},
      {"one_dimension_dilated",
       conv({2, 33, 16}, 16, {.rank = 1, .kernel = {3, 1, 1}, .pad = {4, 0, 0}, .dilation = {4, 1, 1}})},
      {"three_dimensions", conv({2, 5, 6, 7, 4}, 9, {.rank = 3, .kernel = {3, 3, 3}, .pad = {1, 1, 1}}, 1, true)},
      {"three_dimensions_strided",
       conv({1, 8, 7, 6, 16}, 16, {.rank = 3, .kernel = {2, 3, 1}, .stride = {2, 1, 2}, .pad = {0, 1, 0}})},
      {"dilated_24_to_40",
       conv({2, 21, 33, 24}, 40, {.kernel = {3, 3, 1}, .pad = {2, 2, 0}, .dilation = {2, 2, 1}}, 1, true)},
      {"volumes_16_to_24",
       conv({1, 7, 9, 34, 16}, 24, {.rank = 3, .kernel = {3, 3, 3}, .stride = {1, 2, 1}, .pad = {1, 0, 2}}, 1, true)},
      {"odd_9_to_29", conv({2, 15, 17, 9}, 29, {.kernel = {3, 2, 1}, .pad = {1, 1, 0}}, 1, true)},
      {"strided_128_to_16",
       conv({1, 20, 26, 128}, 16, {.kernel = {3, 3, 1}, .stride = {2, 1, 1}, .pad = {1, 1, 0}}, 1, true)},
      {"long_and_narrow", conv({1, 597, 43, 3}, 5, {.kernel = {3, 3, 1}, .stride = {2, 1, 1}, .pad = {1, 1, 0}})},
      {"one_channel_whole_image", conv({3, 6, 5, 1}, 11, {.kernel = {6, 5, 1}}, 1, true)},
      // Small images, for which the CPU computes one product per tap (kn2row): two unequal chunks of images, strides,
      // taps that read only padding, three dimensions.
      {"many_small_images", conv({129, 4, 4, 64}, 64, {.kernel = {3, 1, 1}, .pad = {1, 0, 0}})},
      {"small_images_strided", conv({13, 9, 8, 64}, 72, {.kernel = {2, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}})},
      {"small_images_dilated",
       conv({10, 7, 7, 72}, 64, {.kernel = {3, 2, 1}, .pad = {2, 0, 0}, .dilation = {2, 3, 1}})},
      {"lines_of_pixels", conv({65, 1, 4, 64}, 64, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}})},
      {"small_volumes", conv({8, 2, 3, 2, 64}, 64, {.rank = 3, .kernel = {2, 2, 2}, .pad = {1, 1, 1}})},
      // Depthwise: several panels of channels, blocks of rows, strides, padding wider than the kernel.
      {"depthwise_7x7", conv({2, 9, 12, 40}, 40, {.kernel = {7, 7, 1}, .pad = {3, 3, 0}}, 40, true)},
      {"depthwise_5x5", conv({1, 11, 19, 66}, 66, {.kernel = {5, 5, 1}, .pad = {2, 1, 0}}, 66)},
      {"depthwise_strided_dilated",
       conv({2, 13, 11, 20}, 20, {.kernel = {5, 4, 1}, .stride = {1, 2, 1}, .pad = {4, 1, 0}, .dilation = {2, 1, 1}},
            20)},
      {"depthwise_volumes", conv({1, 2, 17, 41, 35}, 35, {.rank = 3, .kernel = {3, 3, 3}, .pad = {1, 1, 1}}, 35, true)},
      {"depthwise_volumes_strided",
       conv({1, 7, 6, 9, 64}, 64,
            {.rank = 3, .kernel = {3, 1, 2}, .stride = {2, 1, 3}, .pad = {1, 1, 2}, .dilation = {1, 1, 2}}, 64)},
      {"depthwise_even_volumes", conv({1, 4, 5, 21, 66}, 66, {.rank = 3, .kernel = {3, 3, 3}, .pad = {1, 1, 1}}, 66)},
      {"depthwise_many_rows", conv({8, 24, 24, 8}, 8, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 8, true)},
      {"depthwise_odd_channels", conv({2, 7, 9, 35}, 35, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 35)},
      {"depthwise_143_taps", conv({1, 15, 14, 6}, 6, {.kernel = {13, 11, 1}, .pad = {6, 6, 0}}, 6, true)},
      {"depthwise_line", conv({2, 3000, 40}, 40, {.rank = 1, .kernel = {7, 1, 1}, .pad = {3, 0, 0}}, 40)},
      {"depthwise_one_dimension", conv({2, 50, 17}, 17, {.rank = 1, .kernel = {9, 1, 1}, .pad = {4, 0, 0}}, 17, true)},
  };
  return all;
}

// float32: sums of at most a few hundred products. 16 bits: results are rounded once (2^-9, 2^-12 of a value), by
// oneDNN sometimes twice.
constexpr Tolerance activations{2e-6, 8e-3, 1e-3};
// Parameter gradients are float32 for factors of any dtype, and products of 16-bit numbers are exact.
constexpr Tolerance parameters{5e-6, 5e-6, 5e-6};
// cuDNN returns the weight gradient of 16-bit factors in 16 bits, with an error of half a unit in the last place (2^-8,
// 2^-11).
constexpr Tolerance narrow_parameters{5e-6, 4e-3, 5e-4};

class ConvAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType, GradMode>> {};

TEST_P(ConvAgainstReference, ForwardAndGradientsMatch) {
  const auto [index, dtype, mode] = GetParam();
  ConvSpec s = cases()[index].spec;
  s.dtype = dtype;
  OpHarness h(s);
  const auto x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1));
  const auto w = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2));
  const auto b = s.bias ? h.set_weight(1, {s.out_channels}, DType::f32, random_values(s.out_channels, 3)) : Values{};
  const auto dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 4));
  const auto w0 = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 5));
  const auto b0 = s.bias ? h.want_diff_weight(1, {s.out_channels}, mode, random_values(s.out_channels, 6)) : Values{};
  h.want_dst(s.dst(), dtype);
  h.want_diff_src(0, s.src, dtype);
  h.repack();
  h.forward();
  h.backward();

  auto g = reference::conv_backward(s, x, w, dy);
  add(g.weight, w0);
  add(g.bias, b0);
  const std::string with = fmt::format(" by {}", h.op().implementation());
  expect_close(get(h.args.dst), reference::conv_forward(s, x, w, b), activations.of(dtype), "dst" + with);
  expect_close(get(h.args.diff_src[0]), g.src, activations.of(dtype), "diff_src" + with);
  const bool narrow = h.op().implementation().rfind("cudnn", 0) == 0;
  expect_close(get(h.args.diff_weight[0]), g.weight, (narrow ? narrow_parameters : parameters).of(dtype),
               "diff_weight" + with);
  if (s.bias) expect_close(get(h.args.diff_weight[1]), g.bias, parameters.of(dtype), "diff_bias" + with);
}

INSTANTIATE_TEST_SUITE_P(Conv, ConvAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(GradMode::write, GradMode::add)),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == GradMode::add ? "_add" : "_write");
                         });

TEST(ConvOp, PaddingChannelsHaveNoWeightsAndDoNotChangeTheResult) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t zeros : {1, 5})
      for (const GradMode mode : {GradMode::write, GradMode::add}) {
        ConvSpec plain = conv({2, 13, 11, 3}, 16, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 1, true);
        plain.dtype = dtype;
        plain.need_diff_src = false;
        ConvSpec wide = plain;
        wide.padded_channels = zeros;
        wide.src[-1] += zeros;
        ASSERT_EQ(wide.weight(), plain.weight());
        OpHarness h(wide);
        const Values pixels = random_values(plain.src.count(), 1);
        Values src;
        for (std::size_t i = 0; i < pixels.size(); i += 3) {
          for (std::size_t c = 0; c < 3; ++c) src.push_back(pixels[i + c]);
          src.insert(src.end(), std::size_t(zeros), 0.0);
        }
        const Values rounded = h.set_src(0, wide.src, dtype, src);
        Values x;
        for (std::size_t i = 0; i < rounded.size(); ++i)
          if (std::int64_t(i) % wide.src[-1] < 3) x.push_back(rounded[i]);
        const auto w = h.set_weight(0, wide.weight(), dtype, random_values(wide.weight().count(), 2));
        const auto b = h.set_weight(1, {16}, DType::f32, random_values(16, 3));
        const auto dy = h.set_diff_dst(wide.dst(), dtype, random_values(wide.dst().count(), 4));
        const auto w0 = h.want_diff_weight(0, wide.weight(), mode, random_values(wide.weight().count(), 5));
        h.want_diff_weight(1, {16}, mode, random_values(16, 6));
        h.want_dst(wide.dst(), dtype);
        h.repack();
        h.forward();
        h.backward();
        auto g = reference::conv_backward(plain, x, w, dy);
        add(g.weight, w0);
        const std::string with = fmt::format(" with {} by {}", zeros, h.op().implementation());
        expect_close(get(h.args.dst), reference::conv_forward(plain, x, w, b), activations.of(dtype), "dst" + with);
        const bool narrow = h.op().implementation().rfind("cudnn", 0) == 0;
        expect_close(get(h.args.diff_weight[0]), g.weight, (narrow ? narrow_parameters : parameters).of(dtype),
                     "diff_weight" + with);
      }
}

TEST(ConvReference, GradientsMatchFiniteDifferences) {
  for (const std::size_t index : {0, 5, 6, 9, 11}) {
    const ConvSpec s = cases()[index].spec;
    const auto x = random_values(s.src.count(), 1), w = random_values(s.weight().count(), 2);
    const auto b = random_values(s.out_channels, 3), dy = random_values(s.dst().count(), 4);
    const auto g = reference::conv_backward(s, x, w, dy);
    expect_gradient([&](const Values& v) { return reference::conv_forward(s, v, w, b); }, x, dy, g.src, "src");
    expect_gradient([&](const Values& v) { return reference::conv_forward(s, x, v, b); }, w, dy, g.weight, "weight");
    if (s.bias)
      expect_gradient([&](const Values& v) { return reference::conv_forward(s, x, w, v); }, b, dy, g.bias, "bias");
  }
}

TEST(ConvOp, TwoRunsAreBitwiseEqual) {
  expect_same_bits_twice(conv({8, 16, 16, 16}, 32, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 1, true), 32);
  expect_same_bits_twice(conv({8, 16, 16, 16}, 16, {.kernel = {7, 7, 1}, .pad = {3, 3, 0}}, 16, true), 16);
}

TEST(ConvOp, UsesNewMemoryWhenItsArgumentsChange) {
  const ConvSpec s = conv({2, 7, 7, 8}, 8, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}});
  OpHarness h(s);
  const auto w = h.set_weight(0, s.weight(), DType::f32, random_values(s.weight().count(), 2));
  h.repack();
  for (const int seed : {1, 2, 3}) {
    const auto x = h.set_src(0, s.src, DType::f32, random_values(s.src.count(), seed));
    h.want_dst(s.dst(), DType::f32);
    h.forward();
    expect_close(get(h.args.dst), reference::conv_forward(s, x, w, {}), activations.f32, "dst");
  }
}

TEST(ConvOp, SkipsGradientsThatAreNotRequested) {
  ConvSpec s = conv({2, 7, 7, 3}, 8, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 1, true);
  s.need_diff_src = false;
  OpHarness h(s);
  const auto x = h.set_src(0, s.src, DType::f32, random_values(s.src.count(), 1));
  const auto w = h.set_weight(0, s.weight(), DType::f32, random_values(s.weight().count(), 2));
  h.set_weight(1, {8}, DType::f32, random_values(8, 3));
  const auto dy = h.set_diff_dst(s.dst(), DType::f32, random_values(s.dst().count(), 4));
  h.want_dst(s.dst(), DType::f32);
  h.repack();
  h.forward();
  h.backward();  // everything frozen
  h.want_diff_weight(1, {8}, GradMode::write);
  h.backward();  // only the bias
  expect_close(get(h.args.diff_weight[1]), reference::conv_backward(s, x, w, dy).bias, parameters.f32, "diff_bias");
}

TEST(ConvOp, InferenceNeedsNoBackwardState) {
  ConvSpec s = conv({4, 12, 12, 16}, 16, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}});
  const MemoryRequirements train = backend().make(s)->memory_requirements();
  s.mode = Mode::infer;
  const MemoryRequirements infer = backend().make(s)->memory_requirements();
  EXPECT_LE(infer.workspace, train.workspace);
  EXPECT_LE(infer.packed_weights, train.packed_weights);
  EXPECT_EQ(infer.saved, 0u);
}

TEST(ConvSpec, RejectsImpossibleShapes) {
  EXPECT_THROW(conv({2, 4, 4, 6}, 8, {}, 4).dst(), Error);                  // 4 groups of 6 channels
  EXPECT_THROW(conv({2, 4, 4, 6}, 8, {.kernel = {5, 5, 1}}).dst(), Error);  // the kernel is larger than the image
  EXPECT_THROW(conv({2, 4, 6}, 8, {.kernel = {3, 3, 1}}).dst(), Error);     // one dimension, but the window has two
  EXPECT_EQ(conv({2, 597, 43, 3}, 8, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}}).dst(), (Shape{2, 298, 21, 8}));
}

}  // namespace conv_test
}  // namespace millrace
