#include "reference/layer_norm.hpp"

#include <fmt/core.h>

#include "support/op_harness.hpp"

namespace millrace {
namespace layer_norm_test {

using namespace test;
using Kind = LayerNormSpec::Kind;

// Widths of a part of a vector, of whole vectors and beyond the registers of a block; few and many
// positions; one and two spatial dimensions.
const Shape shapes[] = {{3, 5, 5},  {2, 3, 7},       {40, 9, 64}, {1, 1, 768},
                        {5, 6, 96}, {3, 2, 2, 1031}, {7, 3000},   {2, 1, 20480}};

LayerNormSpec norm(const Shape& src, Kind kind, DType dtype) {
  return {src, kind, kind == Kind::layer, kind == Kind::layer ? 1e-5f : 1e-6f, dtype, Mode::train};
}

// Values whose mean is several times their deviation: sums of squares without a shift would lose digits.
Values shifted_values(std::int64_t count, std::uint64_t seed) {
  Values v = random_values(count, seed);
  for (double& x : v) x += 5;
  return v;
}

class LayerNormOp : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, LayerNormOp, testing::Values(Kind::layer, Kind::rms));

TEST_P(LayerNormOp, ForwardAndBackwardMatchReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& src : shapes)
      for (const GradMode mode : {GradMode::write, GradMode::add}) {
        const LayerNormSpec s = norm(src, GetParam(), dtype);
        const Shape channels{s.channels()};
        OpHarness h(s);
        const Values x = h.set_src(0, src, dtype, shifted_values(src.count(), 1));
        const Values gamma = h.set_weight(0, channels, DType::f32, random_values(channels.count(), 2, 2));
        const Values beta =
            s.bias ? h.set_weight(1, channels, DType::f32, random_values(channels.count(), 3)) : Values{};
        const Values dy = h.set_diff_dst(src, dtype, random_values(src.count(), 4));
        const Values before = h.want_diff_weight(0, channels, mode, random_values(channels.count(), 5));
        const Values before_beta =
            s.bias ? h.want_diff_weight(1, channels, mode, random_values(channels.count(), 6)) : Values{};
        h.want_dst(src, dtype);
        h.want_diff_src(0, src, dtype);
        h.forward();
        h.backward();
        const std::string what = fmt::format("{} {}", src.str(), name_of(dtype));
        const auto expected = reference::layer_norm_gradients(s, x, gamma, dy, before, before_beta);
        // float32: the mean, about 5, has an error of a few units in the last place, over a deviation of 0.58.
        constexpr Tolerance result{1e-5, 4e-3, 5e-4}, sums{2e-5, 2e-5, 2e-5};
        expect_close(get(h.args.dst), reference::layer_norm(s, x, gamma, beta), result.of(dtype), what);
        expect_close(get(h.args.diff_src[0]), expected.src, result.of(dtype) * 2, what + " gradient");
        expect_close(get(h.args.diff_weight[0]), expected.gamma, sums.of(dtype), what + " gamma");
        if (s.bias) expect_close(get(h.args.diff_weight[1]), expected.beta, sums.of(dtype), what + " beta");
      }
}

TEST_P(LayerNormOp, WithoutAWeightItIsOne) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& src : shapes) {
      LayerNormSpec s = norm(src, GetParam(), dtype);
      s.weight = s.bias = false;
      OpHarness h(s);
      const Values x = h.set_src(0, src, dtype, shifted_values(src.count(), 1));
      const Values dy = h.set_diff_dst(src, dtype, random_values(src.count(), 4));
      h.want_dst(src, dtype);
      h.want_diff_src(0, src, dtype);
      h.forward();
      h.backward();
      const Values ones(std::size_t(s.channels()), 1.0);
      constexpr Tolerance result{1e-5, 4e-3, 5e-4};  // as above
      expect_close(get(h.args.dst), reference::layer_norm(s, x, ones, {}), result.of(dtype), src.str());
      expect_close(get(h.args.diff_src[0]), reference::layer_norm_gradients(s, x, ones, dy, ones, {}).src,
                   result.of(dtype) * 2, src.str() + " gradient");
    }
}

TEST_P(LayerNormOp, InferenceEqualsTraining) {
  LayerNormSpec s = norm({4, 3, 33}, GetParam(), DType::f32);
  Values results[2];
  for (const Mode mode : {Mode::train, Mode::infer}) {
    s.mode = mode;
    OpHarness h(s);
    h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
    h.set_weight(0, {33}, DType::f32, random_values(33, 2));
    h.set_weight(1, {33}, DType::f32, random_values(33, 3));
    h.want_dst(s.src, s.dtype);
    h.forward();
    results[mode == Mode::train] = get(h.args.dst);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(LayerNormOp, AddsToTheGradientOfItsSource) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& src : {Shape{40, 9, 64}, Shape{2, 3, 7}, Shape{2, 1, 20480}}) {
      LayerNormSpec s = norm(src, GetParam(), dtype);
      s.accumulates_diff_src = true;
      OpHarness h(s);
      const Values x = h.set_src(0, src, dtype, shifted_values(src.count(), 1));
      const Values gamma = h.set_weight(0, {s.channels()}, DType::f32, random_values(s.channels(), 2));
      if (s.bias) h.set_weight(1, {s.channels()}, DType::f32, random_values(s.channels(), 3));
      const Values dy = h.set_diff_dst(src, dtype, random_values(src.count(), 4)), zeros(std::size_t(s.channels()));
      h.want_dst(src, dtype);
      h.want_diff_src(0, src, dtype);
      put(h.args.diff_src[0], random_values(src.count(), 5));
      Values expected = reference::layer_norm_gradients(s, x, gamma, dy, zeros, zeros).src;
      const Values before = get(h.args.diff_src[0]);
      for (std::size_t i = 0; i < before.size(); ++i) expected[i] += before[i];
      h.forward();
      h.backward();
      expect_close(get(h.args.diff_src[0]), expected, Tolerance{2e-5, 8e-3, 1e-3}.of(dtype),
                   fmt::format("{} {}", src.str(), name_of(dtype)));
    }
}

// Frozen weights, or a first layer.
TEST_P(LayerNormOp, WritesOnlyTheRequestedGradients) {
  const LayerNormSpec s = norm({6, 5, 24}, GetParam(), DType::f32);
  for (const bool weights : {false, true}) {
    OpHarness h(s);
    const Values x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
    const Values gamma = h.set_weight(0, {24}, DType::f32, random_values(24, 2));
    if (s.bias) h.set_weight(1, {24}, DType::f32, random_values(24, 3));
    const Values dy = h.set_diff_dst(s.src, s.dtype, random_values(s.src.count(), 4));
    Values zeros(24);
    if (weights)
      h.want_diff_weight(0, {24}, GradMode::write);
    else
      h.want_diff_src(0, s.src, s.dtype);
    h.want_dst(s.src, s.dtype);
    h.forward();
    h.backward();
    const auto expected = reference::layer_norm_gradients(s, x, gamma, dy, zeros, zeros);
    if (weights)
      expect_close(get(h.args.diff_weight[0]), expected.gamma, 1e-5, "gamma");
    else
      expect_close(get(h.args.diff_src[0]), expected.src, 1e-5, "src");
  }
}

TEST_P(LayerNormOp, GradientsOfTwoRunsAreBitwiseEqual) {
  const LayerNormSpec s = norm({40, 30, 24}, GetParam(), DType::f32);
  Values sums[2];
  for (Values& sum : sums) {
    OpHarness h(s);
    h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
    h.set_weight(0, {24}, DType::f32, random_values(24, 2));
    h.set_weight(1, {24}, DType::f32, random_values(24, 3));
    h.set_diff_dst(s.src, s.dtype, random_values(s.src.count(), 4));
    h.want_diff_weight(0, {24}, GradMode::write);
    h.want_dst(s.src, s.dtype);
    h.forward();
    h.backward();
    sum = get(h.args.diff_weight[0]);
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(LayerNormReference, GradientsMatchFiniteDifferences) {
  for (const Kind kind : {Kind::layer, Kind::rms}) {
    const LayerNormSpec s = norm({2, 3, 5}, kind, DType::f32);
    const Values x = random_values(30, 1), gamma = random_values(5, 2), beta = random_values(5, 3),
                 dy = random_values(30, 4), zeros(5);
    const auto g = reference::layer_norm_gradients(s, x, gamma, dy, zeros, zeros);
    expect_gradient([&](const Values& v) { return reference::layer_norm(s, v, gamma, beta); }, x, dy, g.src, "src");
    expect_gradient([&](const Values& v) { return reference::layer_norm(s, x, v, beta); }, gamma, dy, g.gamma, "gamma");
    if (s.bias)
      expect_gradient([&](const Values& v) { return reference::layer_norm(s, x, gamma, v); }, beta, dy, g.beta, "beta");
  }
}

}  // namespace layer_norm_test
}  // namespace millrace
