// Batch norm at fusion level 3: it writes a scale and a bias of each channel, and no result.
#include <fmt/core.h>

#include "reference/batch_norm.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace batch_norm_affine_test {

using namespace test;

BatchNormSpec norm(Shape src, bool consumes_sums) {
  BatchNormSpec s;
  s.src = src;
  s.dtype = DType::f16;
  s.activation = Activation::relu;
  s.consumes_sums = consumes_sums;
  s.consumes_diff_sums = s.produces_affine = true;
  return s;
}

// With a mean of so many standard deviations.
class BatchNormAffine : public ::testing::TestWithParam<std::tuple<Shape, bool, double>> {};

TEST_P(BatchNormAffine, ScaleAndBiasGiveTheResultWithinTheDocumentedError) {
  const auto [shape, consumes_sums, offset] = GetParam();
  const BatchNormSpec s = norm(shape, consumes_sums);
  const std::int64_t channels = s.src[-1];
  const std::size_t n = std::size_t(channels);
  OpHarness h(s);
  Values raw = random_values(s.src.count(), 1);
  for (double& v : raw) v += 0.577 * offset;  // the standard deviation is 0.577
  const Values x = h.set_src(0, s.src, s.dtype, raw);
  const auto gamma = h.set_weight(0, {channels}, DType::f32, random_values(channels, 3));
  const auto beta = h.set_weight(1, {channels}, DType::f32, random_values(channels, 4));
  Values sums(2 * n, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums[i % n] += x[i];
    sums[n + i % n] += x[i] * x[i];
  }
  h.want_sums(h.args.sums, channels);
  put(h.args.sums, sums);
  h.want_sums(h.args.moments, channels);
  h.want_stats({2, channels}, GradMode::write);
  h.args.affine = h.set_src({2, channels}, s.dtype, Values(2 * n, NAN));
  h.state.row_weight = 0.125f;
  h.forward();  // without a dst

  BatchNormSpec linear = s;
  linear.activation = Activation::none;
  const auto f = reference::batch_norm_forward(linear, x, {}, gamma, beta);
  const Values affine = get(h.args.affine), moments = get(h.args.moments), stats = get(h.args.stats);
  // The moments are float32, and the sums too: see BatchNormSpec::consumes_sums.
  const double u = std::ldexp(1.0, -11), moment_error = consumes_sums ? 1e-6 * (1 + offset * offset) : 1e-6;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % n;
    const double scale = gamma[c] / std::sqrt(f.variance[c] + double(s.epsilon));
    const double deviation = std::abs(scale * (x[i] - f.mean[c]));
    const double bias = std::abs(beta[c]) + std::abs(scale * f.mean[c]) * (1 + u);
    ASSERT_NEAR(affine[c] * x[i] + affine[n + c], f.dst[i], u * (deviation + bias) + moment_error * (deviation + bias))
        << i;
  }
  for (std::size_t c = 0; c < n; ++c) {
    EXPECT_NEAR(moments[c], f.mean[c], 1e-6 * (1 + offset));
    EXPECT_NEAR(stats[c], double(s.src[0]) * 0.125 * f.mean[c], 1e-5 * (1 + offset));
  }
}

INSTANTIATE_TEST_SUITE_P(BatchNorm, BatchNormAffine,
                         ::testing::Combine(::testing::Values(Shape{4, 9, 8, 64}, Shape{2, 7, 5, 8},
                                                              Shape{9, 3, 3, 600}, Shape{40, 33}),
                                            ::testing::Bool(), ::testing::Values(0.0, 3.0, 20.0)),
                         [](const auto& info) {
                           return fmt::format("{}_channels_mean_{}{}", std::get<0>(info.param)[-1],
                                              int(std::get<2>(info.param)), std::get<1>(info.param) ? "_sums" : "");
                         });

// The convolution behind it needs nothing else, so the norm keeps nothing.
TEST(BatchNormAffine, SavesNothingAndNeedsTheSumsOfItsGradient) {
  BatchNormSpec s = norm({4, 9, 8, 64}, true);
  EXPECT_EQ(backend().make(s)->memory_requirements().saved, 0u);
  s.consumes_diff_sums = false;
  EXPECT_THROW(backend().make(s), Error);
  s = norm({4, 9, 8, 64}, true);
  s.residual = true;
  EXPECT_THROW(backend().make(s), Error);
}

}  // namespace batch_norm_affine_test
}  // namespace millrace
