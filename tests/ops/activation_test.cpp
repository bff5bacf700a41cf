#include <fmt/core.h>

#include "reference/elementwise.hpp"
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

}  // namespace activation_test
}  // namespace millrace
