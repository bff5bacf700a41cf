// A factor for each row and channel.
#include <fmt/core.h>

#include "support/op_harness.hpp"

namespace millrace {
namespace scale_by_test {

using namespace test;

struct Result {
  Values dst, diff_src, diff_factors;
};
Result reference_of(const ScaleBySpec& s, const Values& x, const Values& factors, const Values& dy) {
  Result out{x, dy, Values(factors.size(), 0.0)};
  const std::int64_t channels = s.src[-1];
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t f = std::size_t(std::int64_t(i) / s.src.row_count() * channels + std::int64_t(i) % channels);
    out.dst[i] *= factors[f];
    out.diff_src[i] *= factors[f];
    out.diff_factors[f] += x[i] * dy[i];
  }
  return out;
}

TEST(ScaleByOp, MultipliesAndSumsTheGradientsOfTheFactors) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& src : {Shape{3, 5, 7}, Shape{2, 6, 5, 16}, Shape{2, 3, 2, 4, 8}, Shape{4, 24},
                             Shape{1, 50, 40, 8}, Shape{70, 3, 6}, Shape{2, 3, 4100}, Shape{2, 1031, 3}}) {
      const ScaleBySpec s{src, dtype, Mode::train};
      OpHarness h(s);
      const Values x = h.set_src(0, src, dtype, random_values(src.count(), 1)),
                   factors = h.set_src(1, s.factors(), dtype, random_values(s.factors().count(), 2)),
                   dy = h.set_diff_dst(src, dtype, random_values(src.count(), 3));
      h.want_dst(src, dtype);
      h.want_diff_src(0, src, dtype);
      h.want_diff_src(1, s.factors(), dtype);
      h.forward();
      h.backward();
      const Result expected = reference_of(s, x, factors, dy);
      constexpr Tolerance rounded{1e-6, 4e-3, 5e-4}, sums{1e-5, 4e-3, 5e-4};
      const std::string what = fmt::format("{} {}", src.str(), name_of(dtype));
      expect_close(get(h.args.dst), expected.dst, rounded.of(dtype), what);
      expect_close(get(h.args.diff_src[0]), expected.diff_src, rounded.of(dtype), what + " gradient");
      expect_close(get(h.args.diff_src[1]), expected.diff_factors, sums.of(dtype), what + " factors");
    }
}

TEST(ScaleByOp, WritesOnlyTheGradientThatIsWanted) {
  const ScaleBySpec s{{2, 5, 8}, DType::f32, Mode::train};
  for (const int wanted : {0, 1}) {
    OpHarness h(s);
    const Values x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1)),
                 factors = h.set_src(1, s.factors(), s.dtype, random_values(16, 2)),
                 dy = h.set_diff_dst(s.src, s.dtype, random_values(s.src.count(), 3));
    h.want_diff_src(wanted, wanted == 0 ? s.src : s.factors(), s.dtype);
    h.backward();
    const Result expected = reference_of(s, x, factors, dy);
    expect_close(get(h.args.diff_src[std::size_t(wanted)]), wanted == 0 ? expected.diff_src : expected.diff_factors,
                 1e-6, "gradient");
  }
}

TEST(ScaleByReference, GradientsMatchFiniteDifferences) {
  const ScaleBySpec s{{2, 3, 2, 4}, DType::f32, Mode::train};
  const Values x = random_values(s.src.count(), 1), factors = random_values(8, 2), dy = random_values(s.src.count(), 3);
  const Result g = reference_of(s, x, factors, dy);
  expect_gradient([&](const Values& v) { return reference_of(s, v, factors, dy).dst; }, x, dy, g.diff_src, "src");
  expect_gradient([&](const Values& v) { return reference_of(s, x, v, dy).dst; }, factors, dy, g.diff_factors,
                  "factors");
}

// The memory plan gives both tensors the same memory where it can.
TEST(ReshapeOp, CopiesOnlyToOtherMemory) {
  const ReshapeSpec s{{2, 3, 4, 5}, {2, 12, 5}, DType::bf16, Mode::train};
  OpHarness h(s);
  const Values x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1)),
               dy = h.set_diff_dst(s.to, s.dtype, random_values(s.src.count(), 2));
  h.want_dst(s.to, s.dtype);
  h.want_diff_src(0, s.src, s.dtype);
  h.forward();
  h.backward();
  EXPECT_EQ(get(h.args.dst), x);
  EXPECT_EQ(get(h.args.diff_src[0]), dy);
  h.args.dst = h.args.src[0];
  h.args.diff_src[0] = h.args.diff_dst;
  h.forward();
  h.backward();
  EXPECT_EQ(get(h.args.dst), x);
  EXPECT_EQ(get(h.args.diff_src[0]), dy);
}

}  // namespace scale_by_test
}  // namespace millrace
