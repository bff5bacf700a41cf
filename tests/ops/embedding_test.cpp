#include "reference/embedding.hpp"

#include <fmt/core.h>

#include "support/op_harness.hpp"

namespace millrace {
namespace embedding_test {

using namespace test;

struct Case {
  Shape src;
  std::int64_t vocabulary, width;
  DType raw;
};

// Few tokens at many positions, more tokens than positions, widths that are not a multiple of a vector or a tile, one
// token at one position, vocabularies of one to three bytes, and batches of several blocks and tiles of a kernel.
const Case cases[] = {
    {{7, 5}, 3, 6, DType::u8},       {{33, 9}, 12, 1, DType::u8},     {{2, 3}, 20, 17, DType::u16},
    {{1, 1}, 8, 2, DType::i32},      {{5, 60}, 7, 300, DType::i32},   {{2, 2}, 3, 2500, DType::u16},
    {{41, 32}, 300, 16, DType::u16}, {{3, 43}, 70001, 8, DType::i32}, {{9, 1111}, 257, 3, DType::i32}};

Values tokens_of(const Case& c) {
  Values tokens;
  for (std::int64_t i = 0; i < c.src.count(); ++i)
    tokens.push_back(double(std::int64_t(philox(9, 0, std::uint64_t(i)).v[0]) % c.vocabulary));
  tokens.front() = double(c.vocabulary - 1);
  return tokens;
}

TEST(EmbeddingOp, ForwardAndBackwardMatchReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases)
      for (const GradMode mode : {GradMode::write, GradMode::add}) {
        const EmbeddingSpec s{c.src, c.raw, c.vocabulary, c.width, dtype, Mode::train};
        OpHarness h(s);
        const Values tokens = h.set_src(0, s.src, s.raw, tokens_of(c));
        const Values table = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 1));
        const Values dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 2));
        const Values before = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 3));
        h.want_dst(s.dst(), dtype);
        h.forward();
        h.backward();
        const std::string what = fmt::format("{} of {}", s.src.str(), s.weight().str());
        EXPECT_EQ(get(h.args.dst), reference::embedding(s, tokens, table)) << what;
        // Sums of up to a hundred float32 values, in the order of the reference.
        expect_close(get(h.args.diff_weight[0]), reference::embedding_gradient(s, tokens, dy, before), 2e-6, what);
      }
}

// In PyTorch the row of padding_idx has no gradient.
TEST(EmbeddingOp, TheRowOfThePaddingGetsNoGradient) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : {cases[0], cases[2], cases[6]})
      for (const GradMode mode : {GradMode::write, GradMode::add}) {
        const Values tokens = tokens_of(c);
        const std::int64_t padding = std::int64_t(tokens[tokens.size() / 2]);
        const EmbeddingSpec s{c.src, c.raw, c.vocabulary, c.width, dtype, Mode::train, padding};
        OpHarness h(s);
        h.set_src(0, s.src, s.raw, tokens);
        const Values dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 2));
        const Values before = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 3));
        h.backward();
        const Values after = get(h.args.diff_weight[0]);
        expect_close(after, reference::embedding_gradient(s, tokens, dy, before), 2e-6, s.src.str());
        for (std::int64_t i = padding * c.width; i < (padding + 1) * c.width; ++i)
          EXPECT_EQ(after[std::size_t(i)], mode == GradMode::add ? before[std::size_t(i)] : 0) << i;
      }
}

TEST(EmbeddingOp, GradientsOfTwoRunsAreBitwiseEqual) {
  const Case c = cases[4];
  const EmbeddingSpec s{c.src, c.raw, c.vocabulary, c.width, DType::f32, Mode::train};
  Values sums[2];
  for (Values& sum : sums) {
    OpHarness h(s);
    h.set_src(0, s.src, s.raw, tokens_of(c));
    h.set_weight(0, s.weight(), DType::f32, random_values(s.weight().count(), 1));
    h.set_diff_dst(s.dst(), DType::f32, random_values(s.dst().count(), 2));
    h.want_diff_weight(0, s.weight(), GradMode::write);
    h.backward();
    sum = get(h.args.diff_weight[0]);
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(EmbeddingOp, TokensAreCountedAndTheLastIsMarked) {
  for (const DType raw : {DType::u8, DType::u16, DType::i32})
    for (const std::int64_t positions : {1, 6, 300, 1030}) {
      Values tokens = random_values(4 * positions, 4, 100);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const bool padded = i >= std::size_t(positions) * 3 || std::int64_t(tokens[i]) % 3 == 0;  // the last row is
        tokens[i] = padded ? 200 : std::abs(std::int64_t(tokens[i]));
      }
      Values counts, marks(tokens.size());
      for (std::size_t row = 0; row < 4; ++row) {
        std::size_t last = row * std::size_t(positions);
        double count = 7;
        for (std::size_t i = last; i < (row + 1) * std::size_t(positions); ++i) {
          counts.push_back(tokens[i] == 200 ? 7 : ++count);
          if (tokens[i] != 200) last = i;
        }
        marks[last] = 1;
      }
      DocumentsSpec s{{4, positions}, raw, 200, DType::i32, DocumentsSpec::Kind::counts, 7};
      for (const DType dtype : {DType::i32, DType::f32, DType::bf16, DType::f16}) {
        if (dtype != DType::i32) s.kind = DocumentsSpec::Kind::last;
        s.dtype = dtype;
        OpHarness h(s);
        h.set_src(0, s.src, raw, tokens);
        h.want_dst(s.dst(), s.dtype);
        h.forward();
        EXPECT_EQ(get(h.args.dst), dtype == DType::i32 ? counts : marks) << name_of(raw) << positions;
      }
    }
}

TEST(EmbeddingOp, FloatTokensAreRejected) {
  try {
    backend().make(EmbeddingSpec{{2, 2}, DType::f32, 4, 4, DType::f32, Mode::train});
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::config);
    EXPECT_NE(std::string(e.what()).find("cannot be tokens"), std::string::npos) << e.what();
  }
}

TEST(EmbeddingOp, PositionsAreAddedToEveryRow) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& src : {Shape{5, 7, 24}, Shape{1, 3, 5}, Shape{130, 2, 3, 9}, Shape{3, 1100, 2}})
      for (const GradMode mode : {GradMode::write, GradMode::add}) {
        const PositionEmbeddingSpec s{src, false, dtype, Mode::train};
        OpHarness h(s);
        const Values x = h.set_src(0, src, dtype, random_values(src.count(), 1));
        const Values table = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2));
        const Values dy = h.set_diff_dst(src, dtype, random_values(src.count(), 3));
        Values sums = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 4));
        h.want_dst(src, dtype);
        h.want_diff_src(0, src, dtype);
        h.forward();
        h.backward();
        Values expected(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
          expected[i] = x[i] + table[i % table.size()];
          sums[i % table.size()] += dy[i];
        }
        constexpr Tolerance rounded{1e-7, 4e-3, 5e-4};
        expect_close(get(h.args.dst), expected, rounded.of(dtype), src.str());
        EXPECT_EQ(get(h.args.diff_src[0]), dy);
        expect_close(get(h.args.diff_weight[0]), sums, 2e-6, src.str());
      }
}

TEST(EmbeddingOp, APartOfATextGetsTheWeightsOfItsPositions) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t channels : {24, 5})
      for (const std::int64_t first : {0, 4, 7}) {
        const PositionEmbeddingSpec s{{2, 3, channels}, false, dtype, Mode::infer, 10};
        OpHarness h(s);
        h.state.position = std::uint64_t(first);
        const Values x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1));
        const Values table = h.set_weight(0, {10, channels}, dtype, random_values(10 * channels, 2));
        h.want_dst(s.src, dtype);
        h.forward();
        Values expected;
        for (std::size_t i = 0; i < x.size(); ++i)
          expected.push_back(x[i] + table[std::size_t(first * channels) + i % std::size_t(3 * channels)]);
        constexpr Tolerance rounded{1e-7, 4e-3, 5e-4};
        expect_close(get(h.args.dst), expected, rounded.of(dtype), s.src.str());
      }
}

TEST(EmbeddingOp, AClassTokenBecomesTheFirstPosition) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& src : {Shape{5, 7, 24}, Shape{1, 3, 5}, Shape{130, 2, 3, 9}, Shape{3, 400, 16}})
      for (const GradMode mode : {GradMode::write, GradMode::add}) {
        const PositionEmbeddingSpec s{src, true, dtype, Mode::train};
        const std::size_t channels = std::size_t(src[-1]), row = std::size_t(src.row_count());
        OpHarness h(s);
        const Values x = h.set_src(0, src, dtype, random_values(src.count(), 1));
        const Values table = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2));
        const Values token = h.set_weight(1, {src[-1]}, DType::f32, random_values(src[-1], 5));
        const Values dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 3));
        // Both gradients have the same history.
        Values sums = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 4));
        h.want_diff_weight(1, {src[-1]}, mode, Values(sums.begin(), sums.begin() + std::ptrdiff_t(channels)));
        h.want_dst(s.dst(), dtype);
        h.want_diff_src(0, src, dtype);
        h.forward();
        h.backward();
        Values expected, dx;
        for (std::size_t i = 0; i < dy.size(); ++i) {
          const std::size_t n = i / table.size(), at = i % table.size();
          expected.push_back((at < channels ? token[at] : x[n * row + at - channels]) + table[at]);
          sums[at] += dy[i];
          if (at >= channels) dx.push_back(dy[i]);
        }
        constexpr Tolerance rounded{1e-7, 4e-3, 5e-4};
        expect_close(get(h.args.dst), expected, rounded.of(dtype), src.str());
        EXPECT_EQ(get(h.args.diff_src[0]), dx);
        expect_close(get(h.args.diff_weight[0]), sums, 2e-6, src.str());
        expect_close(get(h.args.diff_weight[1]), Values(sums.begin(), sums.begin() + std::ptrdiff_t(channels)), 2e-6,
                     src.str());
      }
}

}  // namespace embedding_test
}  // namespace millrace
