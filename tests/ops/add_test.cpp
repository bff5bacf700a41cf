#include "support/op_harness.hpp"

namespace millrace {
namespace add_test {

using namespace test;

TEST(AddOp, MatchesReferenceAndPassesTheGradientToBothOperands) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{3, 5, 7, 3}, Shape{1, 1}, Shape{5, 40, 41, 9}}) {
      AddSpec s{shape, dtype, Mode::train};
      OpHarness h(s);
      const auto a = h.set_src(0, shape, dtype, random_values(shape.count(), 1));
      const auto b = h.set_src(1, shape, dtype, random_values(shape.count(), 2));
      const auto dy = h.set_diff_dst(shape, dtype, random_values(shape.count(), 3));
      h.want_dst(shape, dtype);
      h.want_diff_src(0, shape, dtype);
      h.want_diff_src(1, shape, dtype);
      h.forward();
      h.backward();
      Values sum = a;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
      expect_close(get(h.args.dst), sum, Tolerance{1e-7, 4e-3, 5e-4}.of(dtype), shape.str());  // one rounding
      EXPECT_EQ(get(h.args.diff_src[0]), dy);
      EXPECT_EQ(get(h.args.diff_src[1]), dy);
      h.args.diff_src[0].data = nullptr;  // not requested
      h.backward();
    }
}

TEST(AddOp, AddsInPlace) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Shape shape{3, 41, 43};
    OpHarness h(AddSpec{shape, dtype, Mode::train});
    Values sum = h.set_src(0, shape, dtype, random_values(shape.count(), 1));
    const auto b = h.set_src(1, shape, dtype, random_values(shape.count(), 2));
    h.args.dst = h.args.src[0];
    h.forward();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
    expect_close(get(h.args.dst), sum, Tolerance{1e-7, 4e-3, 5e-4}.of(dtype), name_of(dtype));
  }
}

}  // namespace add_test
}  // namespace millrace
