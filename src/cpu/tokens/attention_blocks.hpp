// Blocks of attention scores: which keys a query may attend to, and the passes over a block that are not products.
#pragma once
#include <cstdint>

namespace millrace::cpu::attention {

// A block of scores: queries [first_query, + queries) against keys [first_key, + keys).
struct ScoreBlock {
  std::int64_t first_query, queries, first_key, keys;
  bool causal;

  // How many of the block's keys query number q of the block attends to.
  std::int64_t visible(std::int64_t q) const {
    if (!causal) return keys;
    const std::int64_t count = first_query + q - first_key + 1;
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
// diff = probability * (diff - delta) * scale: the gradient of a score from that of its probability.
void score_gradients(const ScoreBlock&, float scale, float* diff, const float* probabilities, const float* delta);

// to[i] = from[i] / divisor
void divide(float* to, const float* from, float divisor, std::int64_t count);
float dot(const float* a, const float* b, std::int64_t count);

}  // namespace millrace::cpu::attention
