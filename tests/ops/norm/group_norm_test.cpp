#include "reference/group_norm.hpp"

#include <fmt/core.h>

#include "support/op_harness.hpp"

namespace millrace {
namespace group_norm_test {

using namespace test;

struct Case {
  Shape src;
  std::int64_t groups;
};
// Groups of one channel (instance norm), of some and of all; channels of a part of a vector and of several tiles; one
// position, one and three spatial dimensions, and positions of several parts.
const Case cases[] = {{{2, 5, 7, 6}, 3}, {{3, 4, 8}, 8},     {{2, 3, 3, 3, 16}, 4}, {{1, 40, 40, 8}, 2},
                      {{4, 9, 5}, 1},    {{2, 300, 64}, 32}, {{70, 6, 24}, 8},      {{2, 3, 4100}, 2},
                      {{3, 24}, 4},      {{1, 1031, 3}, 3}};

GroupNormSpec norm(const Case& c, DType dtype) { return {c.src, c.groups, 1e-5f, dtype, Mode::train}; }

// Values whose mean is several times their deviation: sums of squares without a shift would lose digits.
Values shifted_values(std::int64_t count, std::uint64_t seed) {
  Values v = random_values(count, seed);
  for (double& x : v) x += 5;
  return v;
}

TEST(GroupNormOp, ForwardAndBackwardMatchReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases)
      for (const GradMode mode : {GradMode::write, GradMode::add}) {
        const GroupNormSpec s = norm(c, dtype);
        const Shape channels{s.channels()};
        OpHarness h(s);
        const Values x = h.set_src(0, s.src, dtype, shifted_values(s.src.count(), 1));
        const Values gamma = h.set_weight(0, channels, DType::f32, random_values(channels.count(), 2, 2));
        const Values beta = h.set_weight(1, channels, DType::f32, random_values(channels.count(), 3));
        const Values dy = h.set_diff_dst(s.src, dtype, random_values(s.src.count(), 4));
        const Values before = h.want_diff_weight(0, channels, mode, random_values(channels.count(), 5));
        const Values before_beta = h.want_diff_weight(1, channels, mode, random_values(channels.count(), 6));
        h.want_dst(s.src, dtype);
        h.want_diff_src(0, s.src, dtype);
        h.forward();
        h.backward();
        const std::string what = fmt::format("{} by {} {}", s.src.str(), c.groups, name_of(dtype));
        const auto expected = reference::group_norm_gradients(s, x, gamma, dy, before, before_beta);
        // float32: the mean, about 5, has an error of a few units in the last place, over a deviation of 0.58.
        constexpr Tolerance result{1e-5, 4e-3, 5e-4}, sums{2e-5, 2e-5, 2e-5};
        expect_close(get(h.args.dst), reference::group_norm(s, x, gamma, beta), result.of(dtype), what);
        expect_close(get(h.args.diff_src[0]), expected.src, result.of(dtype) * 2, what + " gradient");
        expect_close(get(h.args.diff_weight[0]), expected.gamma, sums.of(dtype), what + " gamma");
        expect_close(get(h.args.diff_weight[1]), expected.beta, sums.of(dtype), what + " beta");
      }
}

TEST(GroupNormOp, WithoutWeightsTheyAreOneAndZero) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : cases) {
      GroupNormSpec s = norm(c, dtype);
      s.affine = false;
      OpHarness h(s);
      const Values x = h.set_src(0, s.src, dtype, shifted_values(s.src.count(), 1));
      const Values dy = h.set_diff_dst(s.src, dtype, random_values(s.src.count(), 4));
      h.want_dst(s.src, dtype);
      h.want_diff_src(0, s.src, dtype);
      h.forward();
      h.backward();
      const Values ones(std::size_t(s.channels()), 1.0), zeros(ones.size(), 0.0);
      constexpr Tolerance result{1e-5, 4e-3, 5e-4};  // as above
      expect_close(get(h.args.dst), reference::group_norm(s, x, ones, zeros), result.of(dtype), s.src.str());
      expect_close(get(h.args.diff_src[0]), reference::group_norm_gradients(s, x, ones, dy, zeros, zeros).src,
                   result.of(dtype) * 2, s.src.str() + " gradient");
    }
}

TEST(GroupNormOp, InferenceEqualsTraining) {
  GroupNormSpec s = norm({{4, 3, 33}, 11}, DType::f32);
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
    EXPECT_EQ(h.op().memory_requirements().saved > 0, mode == Mode::train);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(GroupNormOp, WritesOnlyTheGradientsThatAreWanted) {
  const GroupNormSpec s = norm(cases[0], DType::f32);
  OpHarness h(s);
  const Values x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
  const Values gamma = h.set_weight(0, {6}, DType::f32, random_values(6, 2));
  h.set_weight(1, {6}, DType::f32, random_values(6, 3));
  const Values dy = h.set_diff_dst(s.src, s.dtype, random_values(s.src.count(), 4));
  h.want_dst(s.src, s.dtype);
  h.forward();
  h.backward();  // nothing is wanted
  h.want_diff_weight(1, {6}, GradMode::write);
  h.backward();
  const auto expected = reference::group_norm_gradients(s, x, gamma, dy, Values(6, 0.0), Values(6, 0.0));
  expect_close(get(h.args.diff_weight[1]), expected.beta, 1e-5, "beta");
  h.args.diff_weight = {};
  h.want_diff_src(0, s.src, s.dtype);
  h.backward();
  expect_close(get(h.args.diff_src[0]), expected.src, 1e-5, "src");
}

TEST(GroupNormReference, GradientsMatchFiniteDifferences) {
  for (const std::size_t index : {0, 1, 4}) {
    const GroupNormSpec s = norm(cases[index], DType::f32);
    const auto channels = std::size_t(s.channels());
    const Values x = random_values(s.src.count(), 1), gamma = random_values(s.channels(), 2),
                 beta = random_values(s.channels(), 3), dy = random_values(s.src.count(), 4);
    const auto g = reference::group_norm_gradients(s, x, gamma, dy, Values(channels, 0.0), Values(channels, 0.0));
    expect_gradient([&](const Values& v) { return reference::group_norm(s, v, gamma, beta); }, x, dy, g.src, "src");
    expect_gradient([&](const Values& v) { return reference::group_norm(s, x, v, beta); }, gamma, dy, g.gamma, "gamma");
    expect_gradient([&](const Values& v) { return reference::group_norm(s, x, gamma, v); }, beta, dy, g.beta, "beta");
  }
}

TEST(GroupNormSpec, RejectsGroupsThatDoNotDivideTheChannels) {
  EXPECT_THROW(backend().make(norm({{2, 4, 6}, 4}, DType::f32)), Error);
  EXPECT_THROW(backend().make(norm({{2, 4, 6}, 0}, DType::f32)), Error);
}

}  // namespace group_norm_test
}  // namespace millrace
