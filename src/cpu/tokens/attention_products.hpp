// The matrix products of attention for one thread: with own tiles for float32 and, where the processor has AVX-512 with
// bf16, for bf16; otherwise by oneDNN.
#pragma once
#include <memory>
#include <string>

#include "cpu/tokens/attention_blocks.hpp"
#include "millrace/ops/attention.hpp"

namespace millrace::cpu::attention {

// Scores, probabilities and their gradients are (queries, keys) of a block, stored as ScoreBlock says. P and dS are in
// the type of the specification, results in float32. Elements of S and dP for keys that a query does not attend to are
// undefined. Zeros in P and dS stand for these keys.
class HeadProducts {
 public:
  virtual ~HeadProducts() = default;
  virtual std::string name() const = 0;
  virtual std::size_t scratch_bytes() const = 0;  // 64-byte aligned; kept between the calls for a row
  // K and V of a row and key head, where they are in src.
  virtual void begin_keys(const void* keys, const void* values, void* scratch) = 0;
  // Q of the queries [first, first + count), where they are in src, and dO in diff_dst; null: only the forward
  // products follow.
  virtual void begin_queries(std::int64_t count, const void* queries, const void* diff) = 0;
  virtual void scores(const ScoreBlock&, float* scores) = 0;                               // S = Q K^T
  virtual void weighted(const ScoreBlock&, const void* probabilities, float* sums) = 0;    // sums += P V
  virtual void diff_probabilities(const ScoreBlock&, float* diff) = 0;                     // dP = dO V^T
  virtual void diff_value(const ScoreBlock&, const void* probabilities, float* diff) = 0;  // dV += P^T dO
  virtual void diff_query(const ScoreBlock&, const void* diff_scores, float* diff) = 0;    // dQ += dS K
  virtual void diff_key(const ScoreBlock&, const void* diff_scores, float* diff) = 0;      // dK += dS^T Q
};

// For blocks of at most `queries` x `keys`; only the last ones are smaller.
std::unique_ptr<HeadProducts> make_head_products(const AttentionSpec&, std::int64_t queries, std::int64_t keys);
// Those by oneDNN, for any processor.
std::unique_ptr<HeadProducts> make_onednn_products(const AttentionSpec&, std::int64_t queries, std::int64_t keys);
// Those in bf16; null: this processor, oneDNN's settings or an odd head_size exclude them.
std::unique_ptr<HeadProducts> make_pair_products(const AttentionSpec&, std::int64_t queries, std::int64_t keys);

}  // namespace millrace::cpu::attention
