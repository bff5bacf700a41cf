#include "cpu/tokens/attention_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/common/draws.hpp"
#include "cpu/common/vector_math.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace::cpu::attention {
namespace {

MR_TARGET_CLONES float largest(const float* x, std::int64_t n) {
  float lanes[16];
  std::fill_n(lanes, 16, -std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int l = 0; l < 16; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  for (int l = 0; i + l < n; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  return *std::max_element(lanes, lanes + 16);
}
// x = exp(scale * x - shift)
MR_TARGET_CLONES void exponentials(float* x, float scale, float shift, std::int64_t n) {
  const ExpBounds bounds;
  for (std::int64_t i = 0; i < n; ++i) x[i] = fast_exp(x[i] * scale - shift, bounds);
}
MR_TARGET_CLONES float total(const float* x, std::int64_t n) {
  float lanes[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int l = 0; l < 16; ++l) lanes[l] += x[i + l];
  for (int l = 0; i + l < n; ++l) lanes[l] += x[i + l];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}
MR_TARGET_CLONES void multiply(float* x, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}
MR_TARGET_CLONES void gradient_row(float* __restrict diff, const float* __restrict p, float delta, float scale,
                                   std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) diff[i] = p[i] * (diff[i] - delta) * scale;
}

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
    float* const row = factors + q * b.keys;
    if (b.visible(q) <= b.hidden(q)) {  // all probabilities are 0
      std::fill_n(row, b.keys, 0.0f);
      continue;
    }
    const std::uint64_t counter =
        dropout.counter(of.step, int(b.first_query + q), int(b.first_key / AttentionDropout::tile));
    draw_factors(drawn, dropout.key_of_head(of.head), counter, of.id, dropout.probability);
    std::copy_n(drawn, b.keys, row);
  }
}

void softmax_block(const ScoreBlock& b, float scale, float* scores, float* maximum, float* sum, float* sums,
                   std::int64_t size) {
  for (std::int64_t q = 0; q < b.queries; ++q) {
    float* const row = scores + q * b.keys;
    const std::int64_t hidden = b.hidden(q), visible = b.visible(q), count = visible - hidden;
    if (count <= 0) {
      std::fill_n(row, b.keys, 0.0f);
      continue;
    }
    std::fill_n(row, hidden, 0.0f);
    std::fill(row + visible, row + b.keys, 0.0f);
    const float before = maximum[q], now = std::max(before, scale * largest(row + hidden, count));
    exponentials(row + hidden, scale, now, count);
    const float factor = std::exp(before - now);  // 0 for the first block, where `before` is -infinity
    sum[q] = sum[q] * factor + total(row + hidden, count);
    if (factor != 1) multiply(sums + q * size, factor, size);
    maximum[q] = now;
  }
}

void probabilities_block(const ScoreBlock& b, float scale, float* scores, const float* log_sum) {
  for (std::int64_t q = 0; q < b.queries; ++q) {
    float* const row = scores + q * b.keys;
    const std::int64_t hidden = b.hidden(q), visible = std::max(hidden, b.visible(q));
    std::fill_n(row, hidden, 0.0f);
    exponentials(row + hidden, scale, log_sum[q], visible - hidden);
    std::fill(row + visible, row + b.keys, 0.0f);
  }
}

void score_gradients(const ScoreBlock& b, float scale, float* diff, const float* probabilities, const float* delta) {
  for (std::int64_t q = 0; q < b.queries; ++q)
    gradient_row(diff + q * b.keys, probabilities + q * b.keys, delta[q], scale, b.keys);
}

MR_TARGET_CLONES void divide(float* to, const float* from, float divisor, std::int64_t count) {
  const float factor = 1 / divisor;
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

MR_TARGET_CLONES float dot(const float* a, const float* b, std::int64_t count) {
  float lanes[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int l = 0; l < 16; ++l) lanes[l] += a[i + l] * b[i + l];
  for (int l = 0; i + l < count; ++l) lanes[l] += a[i + l] * b[i + l];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace millrace::cpu::attention
