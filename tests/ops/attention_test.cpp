#include "reference/attention.hpp"

#include <fmt/core.h>

#include "support/expect_error.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace attention_test {

using namespace test;

struct Case {
  std::int64_t rows, positions, heads, key_heads, size;
  bool causal;
};
// One position, parts of a block, whole blocks, several blocks with a rest; grouped queries; head sizes that are no
// multiple of a vector; wide heads.
const Case cases[] = {{2, 1, 2, 2, 8, true},     {3, 5, 1, 1, 3, false},   {1, 64, 2, 1, 16, true},
                      {2, 197, 3, 3, 20, false}, {1, 300, 4, 2, 32, true}, {1, 530, 2, 1, 8, true},
                      {1, 70, 2, 1, 72, true},   {1, 67, 1, 1, 133, false}};

AttentionSpec spec_of(const Case& c, DType dtype = DType::f32) {
  return {
      {c.rows, c.positions, (c.heads + 2 * c.key_heads) * c.size}, c.heads, c.key_heads, c.causal, dtype, Mode::train};
}

TEST(AttentionOp, ForwardAndBackwardMatchReference) {
  // 16 bits: probabilities and the gradients of scores are rounded before the second product.
  constexpr Tolerance tolerance{5e-6, 1e-2, 1e-3};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases) {
      const AttentionSpec s = spec_of(c, dtype);
      OpHarness h(s);
      const Values x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1, 2));
      const Values dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 2));
      h.want_dst(s.dst(), dtype);
      h.want_diff_src(0, s.src, dtype);
      h.forward();
      h.backward();
      const auto expected = reference::attention(s, x, dy);
      const std::string what = fmt::format("{} {} heads {}", s.src.str(), s.heads, name_of(dtype));
      expect_close(get(h.args.dst), expected.dst, tolerance.of(dtype), what);
      expect_close(get(h.args.diff_src[0]), expected.diff_src, tolerance.of(dtype), what + " gradient");
    }
}

// Scores far from zero: without the subtraction of the maximum, exponentials would overflow.
TEST(AttentionOp, LargeScoresStayFinite) {
  const AttentionSpec s = spec_of({1, 300, 1, 1, 16, true});
  OpHarness h(s);
  const Values x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1, 100));
  h.want_dst(s.dst(), s.dtype);
  h.forward();
  expect_close(get(h.args.dst), reference::attention(s, x).dst, 1e-3, "scores of thousands");
}

TEST(AttentionOp, InferenceEqualsTraining) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    AttentionSpec s = spec_of({2, 70, 2, 1, 16, true}, dtype);
    Values results[2];
    for (const Mode mode : {Mode::train, Mode::infer}) {
      s.mode = mode;
      OpHarness h(s);
      h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1));
      h.want_dst(s.dst(), s.dtype);
      h.forward();
      results[mode == Mode::train] = get(h.args.dst);
    }
    EXPECT_EQ(results[0], results[1]) << name_of(dtype);
  }
}

TEST(AttentionOp, HeadsMustFitTheWidth) {
  expect_error(Exit::config, "does not hold 3 heads", [] { backend().make(AttentionSpec{{2, 4, 16}, 3, 3}); });
  expect_error(Exit::config, "does not hold 3 heads", [] { backend().make(AttentionSpec{{2, 4, 28}, 3, 2}); });
}

TEST(AttentionReference, GradientMatchesFiniteDifferences) {
  for (const bool causal : {false, true}) {
    const AttentionSpec s = spec_of({2, 4, 2, 1, 3, causal});
    const Values x = random_values(s.src.count(), 1), dy = random_values(s.dst().count(), 2);
    expect_gradient([&](const Values& v) { return reference::attention(s, v).dst; }, x, dy,
                    reference::attention(s, x, dy).diff_src, "src");
  }
}

}  // namespace attention_test
}  // namespace millrace
