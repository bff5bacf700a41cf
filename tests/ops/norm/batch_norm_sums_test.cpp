// Batch norm at fusion level 2, where the sums are inputs and not computed by the op.
#include <fmt/core.h>

#include "reference/batch_norm.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace batch_norm_sums_test {

using namespace test;

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{2, 7, 5, 3},   {4, 9, 8, 64}, {3, 4, 3, 5, 70}, {5, 31, 29, 43},
                                      {9, 3, 3, 600}, {1, 5, 5, 16}, {40, 33}};
  return all;
}

// Like the tolerances in batch_norm_test.cpp; in float32 twice as large, because the sums that are passed in are
// float32.
constexpr Tolerance tolerance{8e-6, 5e-3, 6e-4};
constexpr double sum_tolerance = 1e-5;

struct NormRun {
  OpHarness h;
  Values x, gamma, beta, passed;
  reference::BatchNormForward f;
  reference::BatchNormGradients g;

  // passed: the gradient of the result, after the gradient of the ReLU.
  NormRun(const BatchNormSpec& s, GradMode mode) : h(s) {
    const std::int64_t n = s.src.count(), channels = s.src[-1];
    Values raw = random_values(n, 1);
    for (std::size_t i = 0; i < raw.size(); ++i) raw[i] += 0.1 * double(i % std::size_t(channels) % 7);
    x = h.set_src(0, s.src, s.dtype, raw);
    gamma = h.set_weight(0, {channels}, DType::f32, random_values(channels, 3));
    beta = h.set_weight(1, {channels}, DType::f32, random_values(channels, 4));
    h.want_dst(s.src, s.dtype);
    h.want_diff_src(0, s.src, s.dtype);
    h.state.row_weight = 0.125f;
    f = reference::batch_norm_forward(s, x, {}, gamma, beta);
    Values dy = random_values(n, 5);
    if (s.consumes_diff_sums)
      for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = f.dst[i] <= 0 ? 0 : dy[i];
    passed = h.set_diff_dst(s.src, s.dtype, dy);
    g = reference::batch_norm_backward(s, x, {}, gamma, beta, passed);
    const std::size_t c = std::size_t(channels);
    h.want_sums(h.args.sums, channels);
    h.want_sums(h.args.moments, channels);
    h.want_sums(h.args.diff_sums, channels);
    if (s.consumes_sums) {
      Values sums(2 * c, 0.0);
      for (std::size_t i = 0; i < x.size(); ++i) {
        sums[i % c] += x[i];
        sums[c + i % c] += x[i] * x[i];
      }
      put(h.args.sums, sums);
    }
    if (s.consumes_diff_sums) {
      Values sums = g.gamma;
      sums.insert(sums.end(), g.beta.begin(), g.beta.end());
      put(h.args.diff_sums, sums);
    }
    const auto gamma0 = h.want_diff_weight(0, {channels}, mode, random_values(channels, 6));
    const auto beta0 = h.want_diff_weight(1, {channels}, mode, random_values(channels, 7));
    for (std::size_t i = 0; i < c; ++i) {
      g.gamma[i] += gamma0[i];
      g.beta[i] += beta0[i];
    }
  }
};

class BatchNormSumsAgainstReference
    : public ::testing::TestWithParam<std::tuple<std::size_t, DType, GradMode, std::pair<bool, bool>>> {};

TEST_P(BatchNormSumsAgainstReference, ForwardGradientsAndStatisticsMatch) {
  const auto [index, dtype, mode, consumes] = GetParam();
  BatchNormSpec s;
  s.src = shapes()[index];
  s.dtype = dtype;
  s.activation = Activation::relu;
  s.consumes_sums = consumes.first;
  s.consumes_diff_sums = consumes.second;
  const std::int64_t channels = s.src[-1];
  NormRun run(s, mode);
  OpHarness& h = run.h;
  const auto stats0 = h.want_stats({2, channels}, mode, random_values(2 * channels, 8));
  h.forward();
  h.backward();

  const std::size_t n = std::size_t(channels);
  Values stats(2 * n), moments(2 * n);
  for (std::size_t c = 0; c < n; ++c) {
    const double weight = double(s.src[0]) * 0.125;
    stats[c] = weight * run.f.mean[c] + stats0[c];
    stats[n + c] = weight * run.f.unbiased[c] + stats0[n + c];
    moments[c] = run.f.mean[c];
    moments[n + c] = 1 / std::sqrt(run.f.variance[c] + double(s.epsilon));
  }
  expect_close(get(h.args.dst), run.f.dst, tolerance.of(dtype), "dst");
  expect_close(get(h.args.diff_src[0]), run.g.src, tolerance.of(dtype), "diff_src");
  expect_close(get(h.args.diff_weight[0]), run.g.gamma, sum_tolerance, "diff_gamma");
  expect_close(get(h.args.diff_weight[1]), run.g.beta, sum_tolerance, "diff_beta");
  expect_close(get(h.args.stats), stats, 2e-6, "stats");
  if (s.consumes_diff_sums) expect_close(get(h.args.moments), moments, 2e-6, "moments");
}

INSTANTIATE_TEST_SUITE_P(BatchNormSums, BatchNormSumsAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, shapes().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(GradMode::write, GradMode::add),
                                            ::testing::Values(std::pair(true, false), std::pair(false, true),
                                                              std::pair(true, true))),
                         [](const auto& info) {
                           const auto consumes = std::get<3>(info.param);
                           return fmt::format("shape_{}_{}{}{}{}", std::get<0>(info.param),
                                              name_of(std::get<1>(info.param)),
                                              std::get<2>(info.param) == GradMode::add ? "_add" : "_write",
                                              consumes.first ? "_sums" : "", consumes.second ? "_diff_sums" : "");
                         });

TEST(BatchNormSums, SaveNoReluBits) {
  BatchNormSpec s;
  s.src = {4, 9, 8, 64};
  s.activation = Activation::relu;
  EXPECT_GT(backend().make(s)->memory_requirements().saved, 4u * 9 * 8 * 64 / 8);
  s.consumes_diff_sums = true;
  EXPECT_EQ(backend().make(s)->memory_requirements().saved, 0u);
}

// As the header documents, the relative error grows by (mean / std)^2: a mean of 30 standard deviations costs three
// digits of the variance.
TEST(BatchNormSums, PrecisionLossOfTheVarianceIsAsDocumented) {
  BatchNormSpec s;
  s.src = {8, 20, 20, 6};
  s.consumes_sums = true;
  NormRun run(s, GradMode::write);
  OpHarness& h = run.h;
  Values raw = random_values(s.src.count(), 1), sums(12, 0.0);
  for (double& v : raw) v += 17;  // the standard deviation is 0.58
  run.x = h.set_src(0, s.src, s.dtype, raw);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    sums[i % 6] += run.x[i];
    sums[6 + i % 6] += run.x[i] * run.x[i];
  }
  put(h.args.sums, sums);
  h.want_stats({2, 6}, GradMode::write);
  h.forward();
  const auto f = reference::batch_norm_forward(s, run.x, {}, run.gamma, run.beta);
  const Values stats = get(h.args.stats);
  for (std::size_t c = 0; c < 6; ++c) EXPECT_NEAR(stats[6 + c], f.unbiased[c], 900 * 2.4e-7 * f.unbiased[c]);
}

}  // namespace batch_norm_sums_test
}  // namespace millrace
