#include "reference/pool.hpp"

#include <fmt/core.h>

#include "support/op_harness.hpp"

namespace millrace {
namespace pool_test {

using namespace test;

struct Case {
  const char* name;
  PoolSpec spec;
};

using Extents = std::array<std::int64_t, 3>;

constexpr Extents ones{1, 1, 1};
constexpr Extents zeros{0, 0, 0};

PoolSpec pool(PoolSpec::Kind kind, Shape src, Extents kernel = ones, Extents stride = ones, Extents pad = zeros,
              Extents dilation = ones, bool ceil_mode = false) {
  PoolSpec s;
  s.kind = kind;
  s.src = src;
  s.window = {src.spatial_rank(), kernel, stride, pad, dilation};
  s.ceil_mode = ceil_mode;
  return s;
}

const std::vector<Case>& cases() {
  using enum PoolSpec::Kind;
  static const std::vector<Case> all{
      {"max_2x2", pool(max, {2, 8, 6, 16}, {2, 2}, {2, 2})},
      {"max_2x2_odd", pool(max, {2, 9, 7, 19}, {2, 2}, {2, 2})},
      {"max_2x2x3", pool(max, {2, 5, 4, 7, 9}, {2, 2, 3}, {2, 2, 3})},
      {"max_2x2_long_lines", pool(max, {1, 3, 411, 3}, {2, 2}, {2, 2})},
      {"max_2x2_1100_channels", pool(max, {1, 4, 5, 1100}, {2, 2}, {2, 2})},
      {"max_3x3_stride_2_pad_1", pool(max, {3, 11, 9, 19}, {3, 3}, {2, 2}, {1, 1})},
      {"max_overlapping_1_channel", pool(max, {2, 7, 5, 1}, {3, 2}, {1, 1}, {1, 0})},
      {"max_1d", pool(max, {2, 597, 3}, {5, 1}, {3, 1}, {2, 0})},
      {"max_3d", pool(max, {2, 5, 6, 7, 9}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0})},
      {"max_dilated", pool(max, {1, 9, 9, 8}, {3, 3}, {1, 1}, {1, 1}, {2, 3})},
      {"max_300_channels", pool(max, {2, 5, 5, 300}, {3, 3}, {2, 2}, {1, 1})},
      {"max_17x17_window", pool(max, {1, 20, 20, 5}, {17, 17}, {1, 1}, {3, 3})},
      {"max_2x2_ceil", pool(max, {2, 9, 7, 8}, {2, 2}, {2, 2}, zeros, ones, true)},
      {"max_3x3_stride_2_ceil", pool(max, {2, 8, 11, 19}, {3, 3}, {2, 2}, zeros, ones, true)},
      {"max_3x3_stride_3_pad_1_ceil", pool(max, {2, 7, 9, 16}, {3, 3}, {3, 3}, {1, 1}, ones, true)},
      {"max_3d_ceil", pool(max, {1, 5, 6, 7, 3}, {2, 3, 2}, {2, 2, 3}, {1, 0, 1}, ones, true)},
      {"average_2x2", pool(average, {2, 8, 6, 16}, {2, 2}, {2, 2})},
      {"average_3x3_stride_2_pad_1", pool(average, {3, 11, 9, 19}, {3, 3}, {2, 2}, {1, 1})},
      {"average_1d", pool(average, {2, 43, 3}, {5, 1}, {3, 1}, {2, 0})},
      {"average_3d", pool(average, {2, 5, 6, 7, 9}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0})},
      {"global_2d", pool(global, {3, 7, 7, 70})},
      {"global_1d", pool(global, {1, 597, 3})},
      {"global_3d_600_channels", pool(global, {2, 3, 2, 3, 600})},
      {"global_of_one_pixel", pool(global, {4, 1, 1, 10})},
  };
  return all;
}

class PoolAgainstReference : public ::testing::TestWithParam<std::tuple<std::size_t, DType>> {};

TEST_P(PoolAgainstReference, ForwardAndGradientMatch) {
  const auto [index, dtype] = GetParam();
  PoolSpec s = cases()[index].spec;
  s.dtype = dtype;
  OpHarness h(s);
  const auto x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1));
  const auto dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 2));
  h.want_dst(s.dst(), dtype);
  h.want_diff_src(0, s.src, dtype);
  h.forward();
  h.backward();
  const auto expected = reference::pool(s, x, dy);
  // A maximum is exact. Sums are float32 and are rounded once.
  const double rounding = Tolerance{2e-6, 4e-3, 5e-4}.of(dtype);
  expect_close(get(h.args.dst), expected.dst, s.kind == PoolSpec::Kind::max ? 0 : rounding, "dst");
  expect_close(get(h.args.diff_src[0]), expected.diff_src, rounding, "diff_src");
}

INSTANTIATE_TEST_SUITE_P(Pool, PoolAgainstReference,
                         ::testing::Combine(::testing::Range<std::size_t>(0, cases().size()),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", cases()[std::get<0>(info.param)].name,
                                              name_of(std::get<1>(info.param)));
                         });

TEST(PoolReference, GradientsMatchFiniteDifferences) {
  for (const std::size_t index : {1, 3, 5, 9, 11, 12}) {
    const PoolSpec s = cases()[index].spec;
    const auto x = random_values(s.src.count(), 1), dy = random_values(s.dst().count(), 2);
    expect_gradient([&](const Values& v) { return reference::pool(s, v).dst; }, x, dy,
                    reference::pool(s, x, dy).diff_src, cases()[index].name);
  }
}

TEST(PoolOp, TiesGoToTheFirstMaximum) {
  const PoolSpec s = pool(PoolSpec::Kind::max, {1, 4, 4, 9}, {2, 2}, {2, 2});
  OpHarness h(s);
  h.set_src(0, s.src, DType::f32, Values(std::size_t(s.src.count()), -3.0));
  h.set_diff_dst(s.dst(), DType::f32, Values(std::size_t(s.dst().count()), 1.0));
  h.want_dst(s.dst(), DType::f32);
  h.want_diff_src(0, s.src, DType::f32);
  h.forward();
  h.backward();
  const Values dx = get(h.args.diff_src[0]);
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const std::size_t y = i / 36, x = i / 9 % 4;
    EXPECT_EQ(dx[i], y % 2 == 0 && x % 2 == 0 ? 1 : 0) << i;
  }
}

TEST(PoolOp, PaddingNeverWins) {
  const PoolSpec s = pool(PoolSpec::Kind::max, {1, 3, 3, 9}, {3, 3}, {2, 2}, {1, 1});
  OpHarness h(s);
  h.set_src(0, s.src, DType::f32, Values(std::size_t(s.src.count()), -1e30));
  h.want_dst(s.dst(), DType::f32);
  h.forward();
  for (const double y : get(h.args.dst)) EXPECT_EQ(y, double(-1e30f));
}

TEST(PoolOp, NanIsTheMaximum) {
  const PoolSpec s = pool(PoolSpec::Kind::max, {1, 2, 2, 3}, {2, 2}, {2, 2});
  for (std::size_t at : {0, 3, 9}) {  // channel 0 of the first, second and last pixel
    OpHarness h(s);
    Values x = random_values(12, 1);
    x[at] = std::nan("");
    h.set_src(0, s.src, DType::f32, x);
    h.want_dst(s.dst(), DType::f32);
    h.forward();
    EXPECT_TRUE(std::isnan(get(h.args.dst)[0]));
    EXPECT_FALSE(std::isnan(get(h.args.dst)[1]));
  }
}

TEST(PoolOp, InferenceSavesNothing) {
  PoolSpec s = cases()[1].spec;
  s.mode = Mode::infer;
  OpHarness h(s);
  EXPECT_EQ(h.op().memory_requirements().saved, 0u);
  const auto x = h.set_src(0, s.src, DType::f32, random_values(s.src.count(), 1));
  h.want_dst(s.dst(), DType::f32);
  h.forward();
  EXPECT_EQ(get(h.args.dst), reference::pool(s, x).dst);
}

}  // namespace pool_test
}  // namespace millrace
