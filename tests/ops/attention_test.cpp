#include "reference/attention.hpp"

#include <fmt/core.h>

#include <algorithm>

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

// 16 bits: probabilities and the gradients of scores are rounded before the second product.
constexpr Tolerance tolerance{5e-6, 1e-2, 1e-3};

std::string text_of(const AttentionSpec& s) {
  return fmt::format("{} {} heads {} dropout {}{}", s.src.str(), s.heads, name_of(s.dtype), s.dropout,
                     s.documents ? " documents" : "");
}

Values ids_of(const AttentionSpec& s) {
  Values ids;
  for (std::int64_t row = 0; row < s.src[0]; ++row) ids.push_back(double(row * 5000000000 + 17));
  return ids;
}

void set_extras(OpHarness& h, const AttentionSpec& s, const reference::AttentionExtras& extras) {
  h.state.rng_step = 12345;
  if (s.dropout > 0 || s.documents) h.set_src(1, {s.src[0]}, DType::i64, ids_of(s));
  if (s.documents) h.set_src(2, {s.src[0], s.positions()}, DType::i32, extras.starts);
}

bool is_cudnn(const AttentionSpec& s) { return backend().make(s)->implementation().starts_with("cudnn"); }

// Which probabilities cuDNN keeps: those of equal scores, if the values are the columns of the unit matrix.
auto dropout_of_cudnn(const AttentionSpec& s, const reference::AttentionExtras& extras) {
  const std::int64_t positions = s.positions(), size = s.head_size();
  Values x(std::size_t(s.src.count()));
  for (std::int64_t at = 0; at < s.src[0] * positions; ++at)
    for (std::int64_t head = s.heads + s.key_heads; head < s.heads + 2 * s.key_heads; ++head)
      x[std::size_t(at * s.src[-1] + head * size + at % positions)] = 1;
  OpHarness h(s);
  h.set_src(0, s.src, s.dtype, x);
  set_extras(h, s, extras);
  h.want_dst(s.dst(), s.dtype);
  h.forward();
  return [=, y = get(h.args.dst)](int row, int head, int query, int key) {
    return y[std::size_t(((row * positions + query) * s.heads + head) * size + key)] > 0;
  };
}

// false: not compared, because not known which probabilities are kept.
bool expect_reference(const AttentionSpec& s, reference::AttentionExtras extras = {}) {
  if (s.drops() && is_cudnn(s) && s.positions() > s.head_size()) return false;
  if (s.drops()) {
    if (is_cudnn(s))
      extras.keeps = dropout_of_cudnn(s, extras);
    else
      extras.keeps = reference::dropout_of_attention(s, ids_of(s), 12345);
  }
  OpHarness h(s);
  const Values x = h.set_src(0, s.src, s.dtype, random_values(s.src.count(), 1, 2));
  set_extras(h, s, extras);
  const Values dy = h.set_diff_dst(s.dst(), s.dtype, random_values(s.dst().count(), 2));
  h.want_dst(s.dst(), s.dtype);
  h.want_diff_src(0, s.src, s.dtype);
  h.forward();
  h.backward();
  const auto expected = reference::attention(s, x, dy, extras);
  expect_close(get(h.args.dst), expected.dst, tolerance.of(s.dtype), text_of(s));
  expect_close(get(h.args.diff_src[0]), expected.diff_src, tolerance.of(s.dtype), text_of(s) + " gradient");
  return true;
}

TEST(AttentionOp, ForwardAndBackwardMatchReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases) expect_reference(spec_of(c, dtype));
}

// Heads that hold a unit matrix, for cuDNN; grouped queries; several tiles and blocks with a rest.
const Case dropout_cases[] = {
    {2, 41, 2, 1, 48, true}, {2, 64, 2, 2, 64, false}, {1, 300, 4, 2, 16, true}, {2, 70, 1, 1, 5, false}};

TEST(AttentionOp, DropsProbabilitiesAsTheReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    int compared = 0;
    for (const Case& c : dropout_cases) {
      if (c.positions > 100 && dtype == DType::f16) continue;
      AttentionSpec s = spec_of(c, dtype);
      s.dropout = c.causal ? 0.2f : 0.6f;
      s.seed = 43;
      s.layer = 3;
      compared += expect_reference(s);
    }
    EXPECT_GE(compared, 2) << name_of(dtype);
  }
}

TEST(AttentionOp, DropoutKeepsTheExpectedPartAndDependsOnSampleStepAndLayer) {
  AttentionSpec s = spec_of({2, 64, 2, 2, 64, false}, DType::bf16);
  s.dropout = 0.3f;
  const auto kept = [&](const Values& ids, std::uint64_t step) {
    OpHarness h(s);
    Values x(std::size_t(s.src.count()));
    for (std::int64_t at = 0; at < 128; ++at)
      for (std::int64_t head = 4; head < 6; ++head) x[std::size_t(at * 384 + head * 64 + at % 64)] = 1;
    h.set_src(0, s.src, s.dtype, x);
    h.set_src(1, {2}, DType::i64, ids);
    h.state.rng_step = step;
    h.want_dst(s.dst(), s.dtype);
    h.forward();
    Values y = get(h.args.dst);
    for (double& v : y) v = v > 0;
    return y;
  };
  const Values some = kept({4, 9}, 1);
  // 5 standard deviations of 16384 draws
  EXPECT_NEAR(double(std::count(some.begin(), some.end(), 1.0)) / double(some.size()), 0.7, 5 * 0.00358);
  EXPECT_EQ(kept({4, 9}, 1), some);
  EXPECT_NE(kept({4, 9}, 2), some);
  EXPECT_NE(kept({5, 9}, 1), some);
  EXPECT_FALSE(std::equal(some.begin(), some.begin() + 64 * 128, some.begin() + 64 * 128)) << "two rows";
  const Values turned = kept({9, 4}, 1);
  EXPECT_TRUE(is_cudnn(s) || std::equal(some.begin(), some.begin() + 64 * 128, turned.begin() + 64 * 128));
  s.layer = 1;
  EXPECT_NE(kept({4, 9}, 1), some);
}

// Documents of one token, of some, of several blocks, up to the last position, and across the border of a block.
Values starts_of(const AttentionSpec& s) {
  Values tokens(std::size_t(s.src[0] * s.positions()));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = i % 7 == 3 && i % 5 != 0 && i % 200 < 90 ? 1 : i % 53 == 0 || i % 53 == 1 ? 1 : 0;
  return reference::documents({{s.src[0], s.positions()}, DType::u8, 1}, tokens);
}

TEST(AttentionOp, DocumentsMatchReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c :
         {Case{2, 5, 2, 1, 8, true}, {2, 41, 2, 1, 48, true}, {1, 300, 2, 1, 16, true}, {1, 530, 1, 1, 8, true}}) {
      if (c.positions > 300 && dtype != DType::f32) continue;
      AttentionSpec s = spec_of(c, dtype);
      s.documents = true;
      s.dropout = c.positions == 41 ? 0.2f : 0;
      expect_reference(s, {starts_of(s), {}});
    }
}

TEST(AttentionOp, SomePositionsAskAsInTheReference) {
  if (!backend().has_partial_attention()) GTEST_SKIP() << "this backend has no kernels for it";
  struct Part {
    Case attention;
    std::int64_t first, count;
    bool documents = false;
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Part& part : {Part{{2, 41, 4, 2, 16, false}, 0, 1}, Part{{2, 197, 1, 1, 24, false}, 190, 7},
                             Part{{1, 300, 2, 1, 8, true}, 70, 140}, Part{{1, 300, 2, 2, 8, true}, 260, 9, true}}) {
      AttentionSpec s = spec_of(part.attention, dtype);
      s.first_query = part.first;
      s.queries = part.count;
      s.documents = part.documents;
      s.dropout = part.attention.positions == 41 ? 0.2f : 0;
      expect_reference(s, {s.documents ? starts_of(s) : Values(), {}});
    }
  AttentionSpec beyond = spec_of(cases[1]);
  beyond.first_query = 4;
  beyond.queries = 2;
  expect_error(Exit::config, "2 positions from 4 on cannot ask", [&] { backend().make(beyond); });
}

TEST(AttentionOp, DocumentsInARowEqualEachAlone) {
  const std::int64_t lengths[] = {70, 1, 130, 99}, width = 4 * 16;
  AttentionSpec packed = spec_of({1, 300, 2, 1, 16, true});
  packed.documents = true;
  Values starts;
  for (const std::int64_t length : lengths) starts.insert(starts.end(), std::size_t(length), double(starts.size()));
  OpHarness h(packed);
  const Values x = h.set_src(0, packed.src, DType::f32, random_values(packed.src.count(), 1, 2));
  const Values dy = h.set_diff_dst(packed.dst(), DType::f32, random_values(packed.dst().count(), 2));
  set_extras(h, packed, {starts, {}});
  h.want_dst(packed.dst(), DType::f32);
  h.want_diff_src(0, packed.src, DType::f32);
  h.forward();
  h.backward();
  const auto part = [](const Values& of, std::int64_t begin, std::int64_t count) {
    return Values(of.begin() + begin, of.begin() + begin + count);
  };
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    const AttentionSpec alone = spec_of({1, length, 2, 1, 16, true});
    OpHarness one(alone);
    one.set_src(0, alone.src, DType::f32, part(x, begin * width, length * width));
    one.set_diff_dst(alone.dst(), DType::f32, part(dy, begin * 32, length * 32));
    one.want_dst(alone.dst(), DType::f32);
    one.want_diff_src(0, alone.src, DType::f32);
    one.forward();
    one.backward();
    expect_close(part(get(h.args.dst), begin * 32, length * 32), get(one.args.dst), 2e-6, "result");
    expect_close(part(get(h.args.diff_src[0]), begin * width, length * width), get(one.args.diff_src[0]), 5e-6,
                 "gradient");
    begin += length;
  }
}

TEST(AttentionDocuments, ASeparatorEndsADocument) {
  const DocumentsSpec small{{1, 6}, DType::u8, 9};
  EXPECT_EQ(reference::documents(small, {9, 1, 9, 9, 2, 9}), (Values{0, 1, 1, 3, 4, 4}));
  for (const DType raw : {DType::u8, DType::u16, DType::i32})
    for (const std::int64_t positions : {1, 6, 300, 1030}) {
      const DocumentsSpec s{{3, positions}, raw, 200};
      Values tokens = random_values(s.src.count(), 4, 100);
      for (double& t : tokens) t = double(std::int64_t(t) % 12 == 0 ? 200 : std::abs(std::int64_t(t)));
      OpHarness h(s);
      h.set_src(0, s.src, raw, tokens);
      h.want_dst(s.dst(), s.dtype);
      h.forward();
      EXPECT_EQ(get(h.args.dst), reference::documents(s, tokens)) << name_of(raw) << positions;
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
      s.dropout = mode == Mode::infer ? 0.5f : 0;  // which is for training only
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

TEST(AttentionOp, WhatItCannotComputeIsRefused) {
  AttentionSpec s = spec_of({2, 4, 2, 1, 8, false});
  s.documents = true;
  expect_error(Exit::config, "documents need causal attention. add `causal`", [&] { backend().make(s); });
  s.documents = false;
  s.dropout = 1;
  expect_error(Exit::config, "dropout 1 is not in [0, 1)", [&] { backend().make(s); });
}

TEST(AttentionReference, GradientMatchesFiniteDifferences) {
  for (const bool causal : {false, true})
    for (const float p : {0.0f, 0.4f}) {
      AttentionSpec s = spec_of({2, 4, 2, 1, 3, causal});
      s.dropout = p;
      s.documents = causal && p > 0;
      const reference::AttentionExtras extras{{0, 0, 2, 2, 0, 1, 1, 1},
                                              reference::dropout_of_attention(s, ids_of(s), 5)};
      const Values x = random_values(s.src.count(), 1), dy = random_values(s.dst().count(), 2);
      expect_gradient([&](const Values& v) { return reference::attention(s, v, {}, extras).dst; }, x, dy,
                      reference::attention(s, x, dy, extras).diff_src, "src");
    }
}

}  // namespace attention_test
}  // namespace millrace
