#include <algorithm>

#include "reference/elementwise.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace dropout_test {

using namespace test;

DropoutSpec dropout(Shape shape, float probability, DType dtype = DType::f32) {
  DropoutSpec s;
  s.src = shape;
  s.probability = probability;
  s.dtype = dtype;
  s.seed = 43;
  s.layer = 2;
  return s;
}

TEST(DropoutOp, ForwardAndBackwardMatchReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const float probability : {0.0f, 0.1f, 0.5f})
      for (const Shape& shape : {Shape{3, 7}, Shape{2, 4, 5, 3}, Shape{3, 5001}, Shape{1, 1}}) {
        const DropoutSpec s = dropout(shape, probability, dtype);
        OpHarness h(s);
        h.state.rng_step = 12345;
        Values ids;
        for (std::int64_t i = 0; i < shape[0]; ++i) ids.push_back(double(i * 5000000000 + 17));
        const auto x = h.set_src(0, shape, dtype, random_values(shape.count(), 1));
        h.set_src(1, {shape[0]}, DType::i64, ids);
        const auto dy = h.set_diff_dst(shape, dtype, random_values(shape.count(), 2));
        h.want_dst(shape, dtype);
        h.want_diff_src(0, shape, dtype);
        h.forward();
        h.state.rng_step = 1;  // backward must use the mask that forward saved
        h.backward();
        const auto factors = reference::dropout_factors(s, ids, [] {
          StepState state;
          state.rng_step = 12345;
          return state;
        }());
        Values y = x, dx = dy;
        for (std::size_t i = 0; i < y.size(); ++i) {
          y[i] *= factors[i];
          dx[i] *= factors[i];
        }
        expect_close(get(h.args.dst), y, Tolerance{2e-7, 4e-3, 5e-4}.of(dtype), shape.str());
        expect_close(get(h.args.diff_src[0]), dx, Tolerance{2e-7, 4e-3, 5e-4}.of(dtype), shape.str());
      }
}

// Stochastic depth.
TEST(DropoutOp, WholeRowsAreKeptOrNot) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{40, 7}, Shape{30, 3, 5, 8}, Shape{10, 5001}}) {
      DropoutSpec s = dropout(shape, 0.4f, dtype);
      s.whole_rows = true;
      OpHarness h(s);
      h.state.rng_step = 7;
      Values ids;
      for (std::int64_t i = 0; i < shape[0]; ++i) ids.push_back(double(i + 100));
      Values y = h.set_src(0, shape, dtype, random_values(shape.count(), 1));
      h.set_src(1, {shape[0]}, DType::i64, ids);
      h.want_dst(shape, dtype);
      h.forward();
      const auto factors = reference::dropout_factors(s, ids, h.state);
      int kept = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        y[i] *= factors[i];
        ASSERT_EQ(factors[i], factors[i / std::size_t(shape.row_count()) * std::size_t(shape.row_count())]);
        kept += i % std::size_t(shape.row_count()) == 0 && factors[i] > 0;
      }
      EXPECT_GT(kept, 0);
      EXPECT_LT(kept, shape[0]);
      expect_close(get(h.args.dst), y, Tolerance{2e-7, 4e-3, 5e-4}.of(dtype), shape.str());
    }
}

TEST(DropoutOp, WholeChannelsAreKeptOrNot) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 30, 20, 16}, Shape{2, 3, 900}}) {
      DropoutSpec s = dropout(shape, 0.4f, dtype);
      s.whole_channels = true;
      OpHarness h(s);
      h.state.rng_step = 7;
      Values ids;
      for (std::int64_t i = 0; i < shape[0]; ++i) ids.push_back(double(i + 100));
      Values y = h.set_src(0, shape, dtype, random_values(shape.count(), 1));
      h.set_src(1, {shape[0]}, DType::i64, ids);
      Values dx = h.set_diff_dst(shape, dtype, random_values(shape.count(), 2));
      h.want_dst(shape, dtype);
      h.want_diff_src(0, shape, dtype);
      h.forward();
      const auto factors = reference::dropout_factors(s, ids, h.state);
      h.backward();
      for (std::size_t i = 0; i < y.size(); ++i) {
        y[i] *= factors[i];
        dx[i] *= factors[i];
      }
      EXPECT_EQ(factors[0], factors[std::size_t(shape[-1])]);
      expect_close(get(h.args.dst), y, Tolerance{2e-7, 4e-3, 5e-4}.of(dtype), shape.str());
      expect_close(get(h.args.diff_src[0]), dx, Tolerance{2e-7, 4e-3, 5e-4}.of(dtype), shape.str());
    }
}

TEST(DropoutOp, MaskDependsOnTheIdOfARowNotOnItsPosition) {
  const Shape shape{2, 300};
  Values rows[2];
  for (int i = 0; i < 2; ++i) {
    OpHarness h(dropout(shape, 0.5f));
    h.set_src(0, shape, DType::f32, Values(600, 1.0));
    h.set_src(1, {2}, DType::i64, i ? Values{9, 4} : Values{4, 9});
    h.want_dst(shape, DType::f32);
    h.forward();
    rows[i] = get(h.args.dst);
  }
  EXPECT_TRUE(std::equal(rows[0].begin(), rows[0].begin() + 300, rows[1].begin() + 300));
  EXPECT_FALSE(std::equal(rows[0].begin(), rows[0].begin() + 300, rows[1].begin()));
  // The tolerance is 5 standard deviations of 600 fair coins.
  EXPECT_NEAR(double(std::count(rows[0].begin(), rows[0].end(), 0.0)), 300, 60);
}

TEST(DropoutOp, IsTheIdentityInInference) {
  DropoutSpec s = dropout({3, 70}, 0.5f, DType::bf16);
  s.mode = Mode::infer;
  OpHarness h(s);
  const auto x = h.set_src(0, s.src, s.dtype, random_values(210, 1));
  h.want_dst(s.src, s.dtype);
  h.forward();
  EXPECT_EQ(get(h.args.dst), x);
}

}  // namespace dropout_test
}  // namespace millrace
