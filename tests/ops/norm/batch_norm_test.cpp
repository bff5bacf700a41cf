#include "reference/batch_norm.hpp"

#include <fmt/core.h>

#include "cpu/common/threads.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace batch_norm_test {

using namespace test;

BatchNormSpec norm(Shape src, bool residual = false, Activation activation = Activation::none) {
  BatchNormSpec s;
  s.src = src;
  s.residual = residual;
  s.activation = activation;
  return s;
}

struct Case {
  const char* name;
  BatchNormSpec spec;
};

// Odd extents, few channels (rows are joined), many channels (divided into slabs), an incomplete slab, several blocks,
// and two rows.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"3_channels", norm({2, 7, 5, 3})},
      {"3_channels_residual_relu", norm({2, 7, 5, 3}, true, Activation::relu)},
      {"1_channel_1d", norm({3, 597, 1}, false, Activation::relu)},
      {"64_channels_residual_relu", norm({4, 9, 8, 64}, true, Activation::relu)},
      {"residual_only", norm({2, 3, 3, 20}, true)},
      {"70_channels_3d", norm({3, 4, 3, 5, 70}, false, Activation::relu)},
      {"43_channels_long", norm({5, 31, 29, 43}, true, Activation::relu)},
      {"600_channels_residual_relu", norm({9, 3, 3, 600}, true, Activation::relu)},
      {"1100_channels", norm({40, 1100})},
      {"batch_1", norm({1, 5, 5, 16}, false, Activation::relu)},
      {"two_values", norm({2, 33})},
      {"24_channels_relu6", norm({3, 9, 8, 24}, false, Activation::relu6)},
      {"43_channels_residual_relu6", norm({5, 31, 29, 43}, true, Activation::relu6)},
      {"600_channels_relu6", norm({9, 3, 3, 600}, false, Activation::relu6)},
  };
  return all;
}

struct NormRun {
  OpHarness h;
  Values x, r, gamma, beta, dy;
  explicit NormRun(const BatchNormSpec& s, double offset = 0) : h(s) {
    const std::int64_t n = s.src.count(), channels = s.src[-1];
    Values raw = random_values(n, 1);
    for (std::size_t i = 0; i < raw.size(); ++i) raw[i] += offset + 0.1 * double(i % std::size_t(channels) % 7);
    x = h.set_src(0, s.src, s.dtype, raw);
    if (s.residual) {
      r = h.set_src(1, s.src, s.dtype, random_values(n, 2));
      h.want_diff_src(1, s.src, s.dtype);
    }
    Values factor = random_values(channels, 3);
    for (double& value : factor) value *= s.activation == Activation::relu6 ? 8 : 1;  // some results are above 6
    gamma = h.set_weight(0, {channels}, DType::f32, factor);
    beta = h.set_weight(1, {channels}, DType::f32, random_values(channels, 4));
    h.want_dst(s.src, s.dtype);
    h.want_diff_src(0, s.src, s.dtype);
    dy = h.set_diff_dst(s.src, s.dtype, random_values(n, 5));
    h.state.row_weight = 0.125f;
  }
};

// float32: sums of several thousand terms. 16 bits: each result is rounded once (2^-9, 2^-12 of a value).
constexpr Tolerance tolerance{4e-6, 5e-3, 6e-4};
// For sums over values that are already rounded. In any dtype, the only error is that of float arithmetic.
constexpr double sum_tolerance = 1e-5;

// Some backends keep two operations.
bool lacks_relu6(const BatchNormSpec& s) {
  if (s.activation != Activation::relu6 || backend().merges_norm(s)) return false;
  EXPECT_THROW(backend().make(s), Error);
  return true;
}

class BatchNormAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType, GradMode>> {};

TEST_P(BatchNormAgainstReference, ForwardGradientsAndStatisticsMatch) {
  const auto [index, dtype, mode] = GetParam();
  BatchNormSpec s = cases()[index].spec;
  s.dtype = dtype;
  if (lacks_relu6(s)) return;
  const std::int64_t channels = s.src[-1];
  NormRun run(s);
  OpHarness& h = run.h;
  const auto gamma0 = h.want_diff_weight(0, {channels}, mode, random_values(channels, 6));
  const auto beta0 = h.want_diff_weight(1, {channels}, mode, random_values(channels, 7));
  const auto stats0 = h.want_stats({2, channels}, mode, random_values(2 * channels, 8));
  h.forward();
  h.backward();

  const auto f = reference::batch_norm_forward(s, run.x, run.r, run.gamma, run.beta);
  auto g = reference::batch_norm_backward(s, run.x, run.r, run.gamma, run.beta, run.dy);
  const std::size_t n = std::size_t(channels);
  Values stats(2 * n);
  for (std::size_t c = 0; c < n; ++c) {
    const double weight = double(s.src[0]) * 0.125;
    stats[c] = weight * f.mean[c] + stats0[c];
    stats[n + c] = weight * f.unbiased[c] + stats0[n + c];
    g.gamma[c] += gamma0[c];
    g.beta[c] += beta0[c];
  }
  expect_close(get(h.args.dst), f.dst, tolerance.of(dtype), "dst");
  expect_close(get(h.args.diff_src[0]), g.src, tolerance.of(dtype), "diff_src");
  if (s.residual) expect_close(get(h.args.diff_src[1]), g.residual, 0, "diff_residual");
  expect_close(get(h.args.diff_weight[0]), g.gamma, sum_tolerance, "diff_gamma");
  expect_close(get(h.args.diff_weight[1]), g.beta, sum_tolerance, "diff_beta");
  expect_close(get(h.args.stats), stats, 1e-6, "stats");
}

INSTANTIATE_TEST_SUITE_P(BatchNorm, BatchNormAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(GradMode::write, GradMode::add)),
                         [](const auto& info) {
                           return fmt::format("{}_{}{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == GradMode::add ? "_add" : "_write");
                         });

TEST(BatchNormReference, GradientsMatchFiniteDifferences) {
  for (const std::size_t index : {0, 1, 4, 10}) {
    const BatchNormSpec s = cases()[index].spec;
    const std::int64_t n = s.src.count(), channels = s.src[-1];
    const auto x = random_values(n, 1), r = random_values(n, 2), dy = random_values(n, 5);
    const auto gamma = random_values(channels, 3), beta = random_values(channels, 4);
    const auto g = reference::batch_norm_backward(s, x, r, gamma, beta, dy);
    const auto f = [&](const Values& x_, const Values& r_, const Values& gamma_, const Values& beta_) {
      return reference::batch_norm_forward(s, x_, r_, gamma_, beta_).dst;
    };
    expect_gradient([&](const Values& v) { return f(v, r, gamma, beta); }, x, dy, g.src, "src", 1e-6, 1e-5);
    if (s.residual) expect_gradient([&](const Values& v) { return f(x, v, gamma, beta); }, r, dy, g.residual, "r");
    expect_gradient([&](const Values& v) { return f(x, r, v, beta); }, gamma, dy, g.gamma, "gamma");
    expect_gradient([&](const Values& v) { return f(x, r, gamma, v); }, beta, dy, g.beta, "beta");
  }
}

TEST(BatchNormOp, InferenceUsesTheRunningValues) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::size_t index : {1, 3, 7, 12}) {
      BatchNormSpec s = cases()[index].spec;
      s.dtype = dtype;
      s.mode = Mode::infer;
      if (lacks_relu6(s)) continue;
      const std::int64_t channels = s.src[-1];
      NormRun run(s);
      EXPECT_EQ(run.h.op().memory_requirements().saved, 0u);
      Values variance = random_values(channels, 9);
      for (double& v : variance) v = v * v + 0.01;
      const auto mean = run.h.set_weight(2, {channels}, DType::f32, random_values(channels, 8));
      variance = run.h.set_weight(3, {channels}, DType::f32, variance);
      run.h.forward();
      const auto f = reference::batch_norm_forward(s, run.x, run.r, run.gamma, run.beta, {mean, variance});
      expect_close(get(run.h.args.dst), f.dst, tolerance.of(dtype), cases()[index].name);
    }
}

// With a mean of 1000 and a standard deviation of 0.6, E[x^2] - E[x]^2 in float would have no correct digit.
TEST(BatchNormOp, VarianceIsAccurateForALargeMean) {
  const BatchNormSpec s = norm({8, 40, 40, 6});
  NormRun run(s, 1000);
  run.h.want_stats({2, 6}, GradMode::write);
  run.h.forward();
  const auto f = reference::batch_norm_forward(s, run.x, run.r, run.gamma, run.beta);
  const Values stats = get(run.h.args.stats);
  for (std::size_t c = 0; c < 6; ++c) EXPECT_NEAR(stats[6 + c], f.unbiased[c], 2e-6 * f.unbiased[c]);
  expect_close(get(run.h.args.dst), f.dst, 2e-4, "dst");  // floats near 1000 are 6e-5 apart
}

// The mean is 17 standard deviations. Cancellation must not make the gradients inaccurate, in any dtype.
TEST(BatchNormOp, GradientsAreAccurateForALargeMean) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    BatchNormSpec s = norm({4, 20, 20, 24}, true, Activation::relu);
    s.dtype = dtype;
    NormRun run(s, 10);
    run.h.want_diff_weight(0, {24}, GradMode::write);
    run.h.forward();
    run.h.backward();
    const auto g = reference::batch_norm_backward(s, run.x, run.r, run.gamma, run.beta, run.dy);
    expect_close(get(run.h.args.diff_src[0]), g.src, tolerance.of(dtype), "diff_src");
    expect_close(get(run.h.args.diff_weight[0]), g.gamma, sum_tolerance, "diff_gamma");
  }
}

TEST(BatchNormOp, OneValuePerChannelHasVarianceZero) {
  const BatchNormSpec s = norm({1, 1, 1, 5});
  NormRun run(s);
  run.h.want_stats({2, 5}, GradMode::write);
  run.h.forward();
  run.h.backward();
  const Values stats = get(run.h.args.stats), dx = get(run.h.args.diff_src[0]);
  for (std::size_t c = 0; c < 5; ++c) {
    EXPECT_EQ(stats[5 + c], 0);
    EXPECT_FLOAT_EQ(float(stats[c]), float(0.125 * run.x[c]));
    EXPECT_NEAR(dx[c], 0, 1e-4);
  }
  expect_close(get(run.h.args.dst), run.beta, 0, "dst");
}

TEST(BatchNormOp, NanPassesTheRelu) {
  const BatchNormSpec s = norm({2, 3, 3, 4}, false, Activation::relu);
  NormRun run(s);
  run.x[5] = std::nan("");
  put(run.h.args.src[0], run.x);
  run.h.forward();
  EXPECT_TRUE(std::isnan(get(run.h.args.dst)[1]));
}

// A residual of +Inf and one of NaN, in a whole vector and in its rest. ReLU6 has no slope at +Inf, ReLU has.
TEST(BatchNormOp, GradientsPassTheActivationOfInfinityAndNan) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Activation activation : {Activation::relu, Activation::relu6}) {
      BatchNormSpec s = norm({2, 3, 3, 19}, true, activation);
      s.dtype = dtype;
      if (lacks_relu6(s)) continue;
      NormRun run(s);
      for (const std::size_t at : {5, 18 + 19 * 4}) {
        run.r[at] = std::numeric_limits<double>::infinity();
        run.r[at + 19] = std::nan("");
        run.r[at + 38] = -std::numeric_limits<double>::infinity();
      }
      put(run.h.args.src[1], run.r);
      run.h.forward();
      run.h.backward();
      const Values gradient = get(run.h.args.diff_src[1]);
      for (const std::size_t at : {5, 18 + 19 * 4}) {
        const std::string what = std::string(name_of(dtype)) + ", " + std::to_string(at);
        EXPECT_EQ(gradient[at], activation == Activation::relu6 ? 0 : run.dy[at]) << what;
        EXPECT_EQ(gradient[at + 19], run.dy[at + 19]) << what;
        EXPECT_EQ(gradient[at + 38], 0) << what;
      }
    }
}

// The order is that of the processor's threads, or of the blocks of a kernel, which differs from call to call.
TEST(BatchNormOp, ResultsDoNotDependOnTheOrderOfTheWork) {
  const int threads = cpu::thread_count();
  for (const std::int64_t channels : {48, 43, 600}) {
    const BatchNormSpec s = norm({8, 33, 31, channels}, true, Activation::relu);
    std::vector<Values> results[3];
    for (int i = 0; i < 3; ++i) {
      cpu::set_thread_count(i + 1);
      NormRun run(s);
      OpHarness& h = run.h;
      h.want_diff_weight(0, {channels}, GradMode::write);
      h.want_diff_weight(1, {channels}, GradMode::write);
      h.want_stats({2, channels}, GradMode::write);
      for (int call = 0; call <= i; ++call) {  // an op is called again and again
        h.forward();
        h.backward();
      }
      for (const auto& t : {h.args.dst, h.args.diff_src[0], h.args.diff_src[1], h.args.diff_weight[0],
                            h.args.diff_weight[1], h.args.stats})
        results[i].push_back(get(t));
    }
    EXPECT_EQ(results[0], results[1]) << channels;
    EXPECT_EQ(results[0], results[2]) << channels;
  }
  cpu::set_thread_count(threads);
}

}  // namespace batch_norm_test
}  // namespace millrace
