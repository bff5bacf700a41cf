#include <fmt/core.h>

#include "reference/elementwise.hpp"
#include "support/expect_error.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace activation_test {

using namespace test;

// float32: the error of erf and exp is about 1e-7. 16 bits: rounding of the result.
constexpr Tolerance tolerance{1e-6, 5e-3, 6e-4};

class ActivationAgainstReference : public ::testing::TestWithParam<std::tuple<ActivationTraits, DType>> {};

TEST_P(ActivationAgainstReference, ForwardAndGradientMatch) {
  const Activation kind = std::get<0>(GetParam()).kind;
  const DType dtype = std::get<1>(GetParam());
  for (const Shape& shape : {Shape{3, 5, 7, 3}, Shape{1, 11}, Shape{4, 4097}, Shape{2, 50, 41, 9}}) {
    ActivationSpec s{shape, kind, dtype, Mode::train};
    OpHarness h(s);
    const auto x = h.set_src(0, shape, dtype, random_values(shape.count(), 1, 6));
    const auto dy = h.set_diff_dst(shape, dtype, random_values(shape.count(), 2));
    h.want_dst(shape, dtype);
    h.want_diff_src(0, shape, dtype);
    h.forward();
    h.backward();
    Values y = x, dx = dy;
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] = reference::activation(kind, x[i]);
      dx[i] *= reference::activation_slope(kind, x[i]);
    }
    const Values kept = get(h.args.dst);
    for (std::size_t i = 0; i < x.size(); ++i)  // these slopes are computed from the rounded result
      dx[i] = kind == Activation::tanh      ? dy[i] * (1 - kept[i] * kept[i])
              : kind == Activation::sigmoid ? dy[i] * kept[i] * (1 - kept[i])
                                            : dx[i];
    expect_close(kept, y, tolerance.of(dtype), "dst " + shape.str());
    expect_close(get(h.args.diff_src[0]), dx, tolerance.of(dtype), "diff_src " + shape.str());
  }
}

INSTANTIATE_TEST_SUITE_P(Activation, ActivationAgainstReference,
                         ::testing::Combine(::testing::ValuesIn(activations),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param).name, name_of(std::get<1>(info.param)));
                         });

TEST(ActivationReference, SlopesMatchFiniteDifferences) {
  for (const auto& [kind, name, reads_src] : activations) {
    const auto x = random_values(40, 1, 3);
    Values slope;
    for (const double v : x) slope.push_back(reference::activation_slope(kind, v));
    const auto f = [kind = kind](Values v) {
      for (double& e : v) e = reference::activation(kind, e);
      return v;
    };
    expect_gradient(f, x, Values(x.size(), 1.0), slope, name);
  }
}

TEST(ActivationOp, ExtremesSaturateAndNanPropagates) {
  for (const auto& [kind, name, reads_src] : activations) {
    const Shape shape{1, 9};
    ActivationSpec s{shape, kind, DType::f32, Mode::infer};
    OpHarness h(s);
    const Values x{-1e30, -50, -1e-30, 0, 1e-30, 50, 1e30, std::nan(""), 1e-4};
    h.set_src(0, shape, DType::f32, x);
    h.want_dst(shape, DType::f32);
    h.forward();
    const Values y = get(h.args.dst);
    EXPECT_TRUE(std::isnan(y[7])) << name;
    for (const std::size_t i : {0, 1, 2, 3, 4, 5, 6, 8}) {
      const double expected = reference::activation(kind, float(x[i]));
      ASSERT_TRUE(std::isfinite(expected)) << "the reference overflows: " << name << " of " << x[i];
      EXPECT_NEAR(y[i], expected, 2e-7 * std::abs(expected) + 1e-38) << name << " of " << x[i];
    }
  }
}

TEST(PreluOp, ForwardAndGradientsMatch) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& src : {Shape{3, 7}, Shape{2, 5, 16}, Shape{9000, 24}, Shape{5, 3, 2, 1}, Shape{3, 5001}})
      for (const std::int64_t slopes : {std::int64_t(0), std::int64_t(1), src[-1]})
        for (const GradMode mode : {GradMode::write, GradMode::add}) {
          const PreluSpec s{src, slopes, 0.1f, dtype, Mode::train};
          OpHarness h(s);
          Values raw = random_values(src.count(), 1);
          raw[2] = 0;  // as PyTorch has it: the slope applies
          const Values x = h.set_src(0, src, dtype, raw),
                       dy = h.set_diff_dst(src, dtype, random_values(src.count(), 2));
          Values w, sums;
          if (slopes > 0) {
            w = h.set_weight(0, {slopes}, DType::f32, random_values(slopes, 3));
            sums = h.want_diff_weight(0, {slopes}, mode, random_values(slopes, 4));
          }
          h.want_dst(src, dtype);
          h.want_diff_src(0, src, dtype);
          h.forward();
          h.backward();
          const auto expected = reference::prelu_gradients(s, x, w, dy);
          for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += expected.slopes[i];
          const std::string what = fmt::format("{} {} {}", src.str(), slopes, name_of(dtype));
          expect_close(get(h.args.dst), reference::prelu(s, x, w), tolerance.of(dtype), what);
          expect_close(get(h.args.diff_src[0]), expected.src, tolerance.of(dtype), what + " gradient");
          if (slopes > 0) expect_close(get(h.args.diff_weight[0]), sums, 3e-6, what + " gradient of the slopes");
        }
  expect_error(Exit::config, "prelu: 2 slopes", [] { PreluSpec{{4, 3}, 2}.check(); });
}

TEST(PreluReference, GradientsMatchFiniteDifferences) {
  for (const std::int64_t slopes : {1, 5}) {
    const PreluSpec s{{3, 5}, slopes};
    const Values x = random_values(15, 1), w = random_values(slopes, 2), dy = random_values(15, 3);
    const auto gradients = reference::prelu_gradients(s, x, w, dy);
    expect_gradient([&](const Values& v) { return reference::prelu(s, v, w); }, x, dy, gradients.src, "src");
    expect_gradient([&](const Values& v) { return reference::prelu(s, x, v); }, w, dy, gradients.slopes, "slopes");
  }
}

}  // namespace activation_test
}  // namespace millrace
