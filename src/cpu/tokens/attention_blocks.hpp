// Blocks of attention scores: which keys a query may attend to, and the passes over a block that are not products.
#pragma once
#include <cstdint>

#include "cpu/tokens/row_sums.hpp"
#include "millrace/ops/attention_dropout.hpp"

namespace millrace::cpu::attention {

constexpr std::int64_t lane_count = row_sum_lanes;  // rows of scores have a multiple of it

// A block of scores: queries [first_query, + queries) against keys [first_key, + keys). It is stored with row_width()
// elements a query. Of those after the last key, the passes over a block may change any.
struct ScoreBlock {
  std::int64_t first_query, queries, first_key, keys;
  bool causal;
  const std::int32_t* starts = nullptr;  // of the documents, by position; null: a row is one document

  std::int64_t row_width() const { return row_width(keys); }
  static std::int64_t row_width(std::int64_t keys) { return (keys + lane_count - 1) / lane_count * lane_count; }

  // Query number q of the block attends to keys [hidden, visible) of the block.
  std::int64_t visible(std::int64_t q) const { return causal ? within(first_query + q + 1) : keys; }
  std::int64_t hidden(std::int64_t q) const { return starts ? within(starts[first_query + q]) : 0; }

 private:
  std::int64_t within(std::int64_t position) const {
    const std::int64_t count = position - first_key;
    return count < 0 ? 0 : count < keys ? count : keys;
  }
};

// Online softmax (Milakov and Gimelshein 2018). For each query: scores become exp(scale * score - maximum), zero for
// keys that it does not attend to; maximum and sum include this block; `sums` of the earlier blocks, `size` values a
// query, are multiplied by exp(old maximum - new maximum).
void softmax_block(const ScoreBlock&, float scale, float* scores, float* maximum, float* sum, float* sums,
                   std::int64_t size);
// The softmax again, from its saved logarithms: probabilities = exp(scale * score - log_sum).
void probabilities_block(const ScoreBlock&, float scale, float* scores, const float* log_sum);
// How dropout changes the probabilities of a row and head.
struct HeadDropout {
  const AttentionDropout& dropout;
  int head;
  std::uint64_t id, step;
};
constexpr std::int64_t drawn_keys = 256;  // of a block, at most; its first key is a multiple of a tile of the dropout
// The factors of all probabilities of a block, 0 or 1 / (1 - dropout).
void dropout_factors(const ScoreBlock&, const HeadDropout&, float* factors);
// diff = probability * (diff - delta) * scale: the gradient of a score from that of its probability; zero for keys that
// a query does not attend to.
void score_gradients(const ScoreBlock&, float scale, float* diff, const float* probabilities, const float* delta);

// to[i] = from[i] / divisor
void divide(float* to, const float* from, float divisor, std::int64_t count);

}  // namespace millrace::cpu::attention
