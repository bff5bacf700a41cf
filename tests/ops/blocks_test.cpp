// Operations that copy blocks or interpolate between elements.
#include <fmt/core.h>

#include "reference/linear_maps.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace blocks_test {

using namespace test;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

TEST(BlocksOp, ConcatJoinsAndDividesGradients) {
  for (const DType dtype : dtypes)
    for (const auto& [a, b, axis] : {std::tuple{Shape{2, 5, 3}, Shape{2, 5, 9}, 2},
                                     {Shape{3, 4, 16}, {3, 1, 16}, 1},
                                     {Shape{2, 3, 5, 8}, {2, 3, 5, 24}, 3},
                                     {Shape{1, 40, 40, 8}, {1, 7, 40, 8}, 1}}) {
      const ConcatSpec s{a, b, axis, dtype, Mode::train};
      OpHarness h(s);
      const Values x = h.set_src(0, a, dtype, random_values(a.count(), 1)),
                   y = h.set_src(1, b, dtype, random_values(b.count(), 2)),
                   g = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 3));
      h.want_dst(s.dst(), dtype);
      h.want_diff_src(0, a, dtype);
      h.want_diff_src(1, b, dtype);
      h.forward();
      h.backward();
      EXPECT_EQ(get(h.args.dst), reference::concat(s, x, y)) << s.dst().str();
      const SliceSpec first{s.dst(), axis, 0, a[axis], dtype}, second{s.dst(), axis, a[axis], b[axis], dtype};
      EXPECT_EQ(get(h.args.diff_src[0]), reference::slice(first, g)) << s.dst().str();
      EXPECT_EQ(get(h.args.diff_src[1]), reference::slice(second, g)) << s.dst().str();
    }
}

TEST(BlocksOp, ConcatWritesOnlyTheGradientThatIsWanted) {
  const Shape a{2, 3}, b{2, 5};
  for (const int wanted : {0, 1}) {
    const ConcatSpec s{a, b, 1, DType::f32, Mode::train};
    OpHarness h(s);
    const Values g = h.set_diff_dst(s.dst(), DType::f32, random_values(s.dst().count(), 3));
    h.want_diff_src(wanted, wanted == 0 ? a : b, DType::f32);
    h.backward();
    EXPECT_EQ(get(h.args.diff_src[std::size_t(wanted)]).front(), g[wanted == 0 ? 0 : 3]);
  }
}

// Labels lie among floating-point targets, and -1 is a NaN there.
TEST(BlocksOp, SliceMovesTheBitsOfIntegers) {
  OpHarness h(SliceSpec{{3, 4}, 1, 1, 2, DType::f32, Mode::infer});
  const Values labels{7, -1, 0, 1, 2, 1 << 23, -5, 3, 4, 2147483647, 9, 8};
  h.set_src(0, {3, 4}, DType::i32, labels);
  h.want_dst({3, 2}, DType::i32);
  h.forward();
  EXPECT_EQ(get(h.args.dst), (Values{-1, 0, 1 << 23, -5, 2147483647, 9}));
}

TEST(BlocksOp, SliceTakesAPartAndItsGradientIsZeroElsewhere) {
  for (const DType dtype : dtypes)
    for (const SliceSpec& of :
         {SliceSpec{{2, 7, 16}, 1, 0, 1}, SliceSpec{{2, 7, 16}, 1, 2, 3}, SliceSpec{{2, 7, 16}, 2, 8, 8},
          SliceSpec{{3, 4, 5}, 2, 4, 1}, SliceSpec{{2, 5, 6, 3}, 2, 0, 6}}) {
      SliceSpec s = of;
      s.dtype = dtype;
      OpHarness h(s);
      const Values x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1)),
                   g = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 2));
      h.want_dst(s.dst(), dtype);
      h.want_diff_src(0, s.src, dtype);
      h.forward();
      h.backward();
      const auto f = [&](const Values& v) { return reference::slice(s, v); };
      EXPECT_EQ(get(h.args.dst), f(x)) << s.src.str();
      EXPECT_EQ(get(h.args.diff_src[0]), reference::linear_gradient(f, x.size(), g)) << s.src.str();
    }
}

TEST(BlocksOp, UpsamplingMatchesReference) {
  using Kind = UpsampleSpec::Kind;
  constexpr Tolerance tolerance{1e-6, 6e-3, 8e-4};
  for (const DType dtype : dtypes)
    for (const Kind kind : {Kind::nearest, Kind::linear})
      for (const auto& [shape, factor] : {std::pair{Shape{2, 5, 3}, 2},
                                          {Shape{1, 3, 4, 8}, 2},
                                          {Shape{2, 1, 5, 3}, 3},
                                          {Shape{1, 2, 3, 2, 8}, 2},
                                          {Shape{1, 4, 1}, 4},
                                          {Shape{2, 3, 3, 2}, 1}}) {
        const UpsampleSpec s{shape, kind, factor, dtype, Mode::train};
        OpHarness h(s);
        const Values x = h.set_src(0, shape, dtype, random_values(shape.count(), 1)),
                     g = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 2));
        h.want_dst(s.dst(), dtype);
        h.want_diff_src(0, shape, dtype);
        h.forward();
        h.backward();
        const auto f = [&](const Values& v) { return reference::upsample(s, v); };
        const std::string what = fmt::format("{} by {}", shape.str(), factor);
        expect_close(get(h.args.dst), f(x), tolerance.of(dtype), what);
        expect_close(get(h.args.diff_src[0]), reference::linear_gradient(f, x.size(), g), tolerance.of(dtype),
                     what + " gradient");
      }
}

// Channels of more than one tile.
TEST(BlocksOp, UpsamplingOfManyChannels) {
  const UpsampleSpec s{{1, 2, 5000}, UpsampleSpec::Kind::linear, 2, DType::bf16, Mode::infer};
  OpHarness h(s);
  const Values x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
  h.want_dst(s.dst(), s.dtype);
  h.forward();
  const Values y = get(h.args.dst);
  for (std::size_t c = 0; c < 5000; ++c) {
    ASSERT_EQ(y[c], x[c]);
    ASSERT_NEAR(y[5000 + c], 0.75 * x[c] + 0.25 * x[5000 + c], 4e-3);
  }
}

}  // namespace blocks_test
}  // namespace millrace
