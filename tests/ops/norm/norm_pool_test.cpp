// Batch norm, ReLU and max pooling in one operation.
#include <fmt/core.h>

#include "reference/batch_norm.hpp"
#include "reference/pool.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace norm_pool_test {

using namespace test;

struct Case {
  const char* name;
  Shape src;
  Window window;
};

Window window(std::array<std::int64_t, 3> kernel, std::array<std::int64_t, 3> stride, std::array<std::int64_t, 3> pad,
              int rank = 2) {
  Window w;
  w.rank = rank;
  w.kernel = kernel;
  w.stride = stride;
  w.pad = pad;
  return w;
}

// Odd extents, single channels and packs, more packs than a block has threads, overlapping windows and pixels between
// windows, windows of padding only, and an incomplete line of results.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"stem", {3, 11, 9, 64}, window({3, 3, 1}, {2, 2, 1}, {1, 1, 0})},
      {"19_channels", {3, 11, 9, 19}, window({3, 3, 1}, {2, 2, 1}, {1, 1, 0})},
      {"2x2", {2, 8, 6, 16}, window({2, 2, 1}, {2, 2, 1}, {0, 0, 0})},
      {"overlapping_1_channel", {2, 7, 5, 1}, window({3, 2, 1}, {1, 1, 1}, {1, 0, 0})},
      {"gaps", {2, 9, 9, 24}, window({1, 2, 1}, {3, 3, 1}, {0, 0, 0})},
      {"borders_of_padding", {1, 4, 5, 8}, window({1, 1, 1}, {1, 1, 1}, {1, 1, 0})},
      {"1d", {2, 597, 3}, window({5, 1, 1}, {3, 1, 1}, {2, 0, 0}, 1)},
      {"3d", {2, 5, 6, 7, 9}, window({2, 3, 2}, {2, 1, 2}, {1, 1, 0}, 3)},
      {"300_channels", {2, 5, 5, 300}, window({3, 3, 1}, {2, 2, 1}, {1, 1, 0})},
      {"2104_channels", {2, 3, 3, 2104}, window({2, 2, 1}, {1, 1, 1}, {0, 0, 0})},
      {"15x17_window", {1, 20, 20, 5}, window({15, 17, 1}, {1, 1, 1}, {3, 3, 0})},
  };
  return all;
}

// As in batch_norm_test.cpp and, for sums that are inputs, in batch_norm_sums_test.cpp.
constexpr Tolerance tolerance{8e-6, 5e-3, 6e-4};
constexpr double sum_tolerance = 1e-5;

BatchNormSpec spec_of(const Case& c, DType dtype) {
  BatchNormSpec s;
  s.src = c.src;
  s.activation = Activation::relu;
  s.pool = c.window;
  s.dtype = dtype;
  return s;
}

// The CPU keeps two operations.
bool lacks_kernel(const BatchNormSpec& s) {
  if (backend().merges_norm(s)) return false;
  EXPECT_THROW(backend().make(s), Error);
  return true;
}

struct Expected {
  reference::BatchNormForward norm;
  Values dst;
  reference::BatchNormGradients gradients;
};

Expected expected_of(BatchNormSpec s, const Values& x, const Values& gamma, const Values& beta, const Values& dy,
                     const std::vector<Values>& running = {}) {
  Expected out;
  out.norm = reference::batch_norm_forward(s, x, {}, gamma, beta, running);
  const auto pooled = reference::pool(s.max_pool(), out.norm.dst, dy);
  out.dst = pooled.dst;
  if (s.mode == Mode::train) out.gradients = reference::batch_norm_backward(s, x, {}, gamma, beta, pooled.diff_src);
  return out;
}

struct PoolRun {
  OpHarness h;
  Values x, gamma, beta, dy;

  explicit PoolRun(const BatchNormSpec& s, double offset = 0) : h(s) {
    const std::int64_t channels = s.src[-1];
    Values raw = random_values(s.src.count(), 1);
    for (std::size_t i = 0; i < raw.size(); ++i) raw[i] += offset + 0.1 * double(i % std::size_t(channels) % 7);
    x = h.set_src(0, s.src, s.dtype, raw);
    gamma = h.set_weight(0, {channels}, DType::f32, random_values(channels, 3));
    beta = h.set_weight(1, {channels}, DType::f32, random_values(channels, 4));
    h.want_dst(s.dst(), s.dtype);
    h.want_diff_src(0, s.src, s.dtype);
    dy = h.set_diff_dst(s.dst(), s.dtype, random_values(s.dst().count(), 5));
    h.state.row_weight = 0.125f;
    if (!s.consumes_sums) return;
    Values sums(2 * std::size_t(channels), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      sums[i % std::size_t(channels)] += x[i];
      sums[std::size_t(channels) + i % std::size_t(channels)] += x[i] * x[i];
    }
    h.want_sums(h.args.sums, channels);
    put(h.args.sums, sums);
  }
  Expected expected(const BatchNormSpec& s) const { return expected_of(s, x, gamma, beta, dy); }
};

class NormPoolAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType, GradMode, bool>> {};

TEST_P(NormPoolAgainstReference, ForwardGradientsAndStatisticsMatch) {
  const auto [index, dtype, mode, consumes_sums] = GetParam();
  BatchNormSpec s = spec_of(cases()[index], dtype);
  if (lacks_kernel(s)) return;
  s.consumes_sums = consumes_sums;
  const std::int64_t channels = s.src[-1];
  PoolRun run(s);
  OpHarness& h = run.h;
  const Values gamma0 = h.want_diff_weight(0, {channels}, mode, random_values(channels, 6));
  const Values beta0 = h.want_diff_weight(1, {channels}, mode, random_values(channels, 7));
  Values stats = h.want_stats({2, channels}, mode, random_values(2 * channels, 8));
  h.forward();
  h.backward();

  Expected e = run.expected(s);
  for (std::size_t c = 0; c < gamma0.size(); ++c) {
    e.gradients.gamma[c] += gamma0[c];
    e.gradients.beta[c] += beta0[c];
    stats[c] += double(s.src[0]) * 0.125 * e.norm.mean[c];
    stats[gamma0.size() + c] += double(s.src[0]) * 0.125 * e.norm.unbiased[c];
  }
  expect_close(get(h.args.dst), e.dst, tolerance.of(dtype), "dst");
  expect_close(get(h.args.diff_src[0]), e.gradients.src, tolerance.of(dtype), "diff_src");
  expect_close(get(h.args.diff_weight[0]), e.gradients.gamma, sum_tolerance, "diff_gamma");
  expect_close(get(h.args.diff_weight[1]), e.gradients.beta, sum_tolerance, "diff_beta");
  expect_close(get(h.args.stats), stats, 2e-6, "stats");
}

INSTANTIATE_TEST_SUITE_P(NormPool, NormPoolAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(GradMode::write, GradMode::add),
                                            ::testing::Values(false, true)),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == GradMode::add ? "_add" : "_write",
                                              std::get<3>(info.param) ? "_sums" : "");
                         });

TEST(NormPoolReference, GradientsMatchFiniteDifferences) {
  for (const std::size_t index : {1, 7}) {
    const BatchNormSpec s = spec_of(cases()[index], DType::f32);
    const std::int64_t channels = s.src[-1];
    const Values x = random_values(s.src.count(), 1), gamma = random_values(channels, 3);
    const Values beta = random_values(channels, 4), dy = random_values(s.dst().count(), 5);
    const auto g = expected_of(s, x, gamma, beta, dy).gradients;
    const auto f = [&](const Values& x_, const Values& gamma_, const Values& beta_) {
      return expected_of(s, x_, gamma_, beta_, dy).dst;
    };
    expect_gradient([&](const Values& v) { return f(v, gamma, beta); }, x, dy, g.src, "x", 1e-7, 1e-5);
    expect_gradient([&](const Values& v) { return f(x, v, beta); }, gamma, dy, g.gamma, "gamma", 1e-7, 1e-5);
    expect_gradient([&](const Values& v) { return f(x, gamma, v); }, beta, dy, g.beta, "beta", 1e-7, 1e-5);
  }
}

TEST(NormPoolOp, InferenceUsesTheRunningValues) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : cases()) {
      BatchNormSpec s = spec_of(c, dtype);
      s.mode = Mode::infer;
      if (lacks_kernel(s)) return;
      PoolRun run(s);
      EXPECT_EQ(run.h.op().memory_requirements().saved, 0u);
      const std::int64_t channels = s.src[-1];
      Values variance = random_values(channels, 9);
      for (double& v : variance) v = v * v + 0.01;
      const auto mean = run.h.set_weight(2, {channels}, DType::f32, random_values(channels, 8));
      variance = run.h.set_weight(3, {channels}, DType::f32, variance);
      run.h.forward();
      const Expected e = expected_of(s, run.x, run.gamma, run.beta, run.dy, {mean, variance});
      expect_close(get(run.h.args.dst), e.dst, tolerance.of(dtype), c.name);
    }
}

// The mean is 17 standard deviations. Cancellation must not make the gradients inaccurate.
TEST(NormPoolOp, GradientsAreAccurateForALargeMean) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const BatchNormSpec s = spec_of({"", {4, 21, 20, 24}, window({3, 3, 1}, {2, 2, 1}, {1, 1, 0})}, dtype);
    if (lacks_kernel(s)) return;
    PoolRun run(s, 10);
    run.h.want_diff_weight(0, {24}, GradMode::write);
    run.h.forward();
    run.h.backward();
    const Expected e = run.expected(s);
    expect_close(get(run.h.args.dst), e.dst, tolerance.of(dtype), "dst");
    expect_close(get(run.h.args.diff_src[0]), e.gradients.src, tolerance.of(dtype), "diff_src");
    expect_close(get(run.h.args.diff_weight[0]), e.gradients.gamma, sum_tolerance, "diff_gamma");
  }
}

// All values of a channel are equal: the first pixel of a window is its maximum. With beta <= 0 no gradient passes.
TEST(NormPoolOp, TiesGoToTheFirstMaximumAndZerosPassNoGradient) {
  const BatchNormSpec s = spec_of({"", {1, 4, 4, 8}, window({2, 2, 1}, {2, 2, 1}, {0, 0, 0})}, DType::f32);
  if (lacks_kernel(s)) return;
  PoolRun run(s);
  put(run.h.args.src[0], Values(std::size_t(s.src.count()), 0.0));
  put(run.h.args.weight[1], {0.5, 0, -0.5, 0.5, 0, -0.5, 0.5, 0});
  put(run.h.args.diff_dst, Values(std::size_t(s.dst().count()), 1.0));
  run.h.want_diff_weight(1, {8}, GradMode::write);
  run.h.forward();
  run.h.backward();
  const Values dst = get(run.h.args.dst), beta = get(run.h.args.diff_weight[1]), dx = get(run.h.args.diff_src[0]);
  for (std::size_t i = 0; i < dst.size(); ++i) EXPECT_EQ(dst[i], i % 8 % 3 == 0 ? 0.5 : 0.0) << i;
  for (std::size_t c = 0; c < 8; ++c) EXPECT_EQ(beta[c], c % 3 == 0 ? 4 : 0) << c;
  // The mean of the gradient, 4 / 16, is subtracted everywhere.
  const double factor = run.gamma[0] / std::sqrt(double(s.epsilon));
  for (std::size_t i = 0; i < dx.size(); i += 8) {
    const bool first = i / 32 % 2 == 0 && i / 8 % 2 == 0;
    EXPECT_NEAR(dx[i], factor * ((first ? 1 : 0) - 0.25), 1e-4 * std::abs(factor)) << i;
  }
}

TEST(NormPoolOp, NanIsTheMaximum) {
  const BatchNormSpec s = spec_of({"", {2, 4, 4, 8}, window({2, 2, 1}, {2, 2, 1}, {0, 0, 0})}, DType::f32);
  if (lacks_kernel(s)) return;
  PoolRun run(s);
  run.x[8 * 5 + 3] = std::nan("");  // the last pixel of the first window; the mean of its channel becomes NaN
  put(run.h.args.src[0], run.x);
  run.h.forward();
  const Values dst = get(run.h.args.dst);
  for (std::size_t i = 0; i < dst.size(); ++i) EXPECT_EQ(std::isnan(dst[i]), i % 8 == 3) << i;
}

}  // namespace norm_pool_test
}  // namespace millrace
