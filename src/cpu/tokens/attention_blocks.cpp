#include "cpu/tokens/attention_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/common/draws.hpp"
#include "cpu/common/vector_math.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace::cpu::attention {
namespace {

// x = exp(scale * x - shift)
MR_TARGET_CLONES void exponentials(float* x, float scale, float shift, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) x[i] = fast_exp(x[i] * scale - shift, bounds);
}
MR_TARGET_CLONES void multiply(float* x, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}
MR_TARGET_CLONES void gradient_row(float* __restrict diff, const float* __restrict p, float delta, float scale,
                                   std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) diff[i] = p[i] * (diff[i] - delta) * scale;
}

// The keys of a query to which it attends, and the whole vectors around them.
struct Span {
  std::int64_t hidden, visible, begin, end;

  Span(const ScoreBlock& b, std::int64_t q)
      : hidden(b.hidden(q)),
        visible(std::max(hidden, b.visible(q))),
        begin(hidden / lane_count * lane_count),
        end(hidden < visible ? ScoreBlock::row_width(visible) : begin) {}
  std::int64_t count() const { return end - begin; }
  // In the vectors, the elements of other keys.
  void fill_margins(float* row, float value) const {
    std::fill(row + begin, row + std::min(hidden, end), value);
    std::fill(row + std::min(visible, end), row + end, value);
  }
  // All elements of other keys.
  void clear_others(float* row, std::int64_t keys) const {
    std::fill_n(row, hidden, 0.0f);
    std::fill(row + visible, row + keys, 0.0f);
  }
};
constexpr float no_score = -std::numeric_limits<float>::infinity();

// The factors of drawn_keys keys of a query.
MR_TARGET_CLONES void draw_factors(float* __restrict to, std::uint64_t key, std::uint64_t counter, std::uint64_t id,
                                   float probability) {
  constexpr int tile = AttentionDropout::tile, draws = AttentionDropout::draws;
  static_assert(drawn_keys == 4 * draw_lanes);
  const float factor = 1 / (1 - probability);
  Draws d;
  philox_lanes(d, key, counter, id);
  for (int t = 0; t < drawn_keys / tile; ++t)
    for (int k = 0; k < 4; ++k)
      for (int x = 0; x < draws; ++x)
        to[t * tile + k * draws + x] = uniform01(d.v[k][t * draws + x]) >= probability ? factor : 0.0f;
}

}  // namespace

void dropout_factors(const ScoreBlock& b, const HeadDropout& of, float* factors) {
  const AttentionDropout& dropout = of.dropout;
  float drawn[drawn_keys];
  for (std::int64_t q = 0; q < b.queries; ++q) {
    float* const row = factors + q * b.row_width();
    if (b.visible(q) <= b.hidden(q)) {  // all probabilities are 0
      std::fill_n(row, b.row_width(), 0.0f);
      continue;
    }
    const std::uint64_t counter =
        dropout.counter(of.step, int(b.first_query + q), int(b.first_key / AttentionDropout::tile));
    draw_factors(drawn, dropout.key_of_head(of.head), counter, of.id, dropout.probability);
    std::copy_n(drawn, b.row_width(), row);
  }
}

void softmax_block(const ScoreBlock& b, float scale, float* scores, float* maximum, float* sum, float* sums,
                   std::int64_t size) {
  const RowSums& rows = row_sums();
  for (std::int64_t q = 0; q < b.queries; ++q) {
    float* const row = scores + q * b.row_width();
    const Span span(b, q);
    if (span.count() > 0) {
      span.fill_margins(row, no_score);
      const float before = maximum[q];
      const float now = std::max(before, scale * rows.largest(row + span.begin, span.count()));
      const float factor = std::exp(before - now);  // 0 for the first block, where `before` is -infinity
      exponentials(row + span.begin, scale, now, span.count());
      sum[q] = sum[q] * factor + rows.sum(row + span.begin, span.count());
      if (factor != 1) multiply(sums + q * size, factor, size);
      maximum[q] = now;
    }
    span.clear_others(row, b.row_width());
  }
}

void probabilities_block(const ScoreBlock& b, float scale, float* scores, const float* log_sum) {
  for (std::int64_t q = 0; q < b.queries; ++q) {
    float* const row = scores + q * b.row_width();
    const Span span(b, q);
    span.fill_margins(row, no_score);
    exponentials(row + span.begin, scale, log_sum[q], span.count());
    span.clear_others(row, b.row_width());
  }
}

void score_gradients(const ScoreBlock& b, float scale, float* diff, const float* probabilities, const float* delta) {
  for (std::int64_t q = 0; q < b.queries; ++q) {
    float* const row = diff + q * b.row_width();
    const Span span(b, q);
    gradient_row(row + span.begin, probabilities + q * b.row_width() + span.begin, delta[q], scale, span.count());
    span.clear_others(row, b.row_width());
  }
}

MR_TARGET_CLONES void divide(float* to, const float* from, float divisor, std::int64_t count) {
  const float factor = 1 / divisor;
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

}  // namespace millrace::cpu::attention
