// The matrix products of attention, by onednn::matmul_call().
#pragma once
#include <algorithm>

#include "cpu/onednn/onednn_op.hpp"
#include "millrace/ops/attention.hpp"

namespace millrace::cpu::attention {

using onednn::Call, onednn::desc;

// The products of one block, for its numbers of queries and keys. Q, K, V, dO: rows of the tensors; scores,
// probabilities and their gradients: dense.
struct BlockProducts {
  Call scores;              // Q K^T
  Call weighted;            // sums += probabilities V
  Call diff_probabilities;  // dO V^T
  Call diff_value;          // dV += probabilities^T dO
  Call diff_query;          // dQ += diff_scores K
  Call diff_key;            // dK += diff_scores^T Q

  BlockProducts() = default;
  BlockProducts(const AttentionSpec& s, std::int64_t queries, std::int64_t keys) {
    const std::int64_t size = s.head_size(), stride = s.src[-1], out = s.heads * size;
    const DType t = s.dtype;
    const desc q = onednn::strided({queries, size}, t, {stride, 1}), k = onednn::strided({keys, size}, t, {stride, 1}),
               k_turned = onednn::strided({size, keys}, t, {1, stride}),
               d_out = onednn::strided({queries, size}, t, {out, 1}), block = onednn::plain({queries, keys}, t),
               block_turned = onednn::strided({keys, queries}, t, {1, keys}),
               block_f32 = onednn::plain({queries, keys}, DType::f32),
               of_queries = onednn::plain({queries, size}, DType::f32),
               of_keys = onednn::plain({keys, size}, DType::f32);
    scores = product(q, k_turned, block_f32, false);
    weighted = product(block, k, of_queries, true);
    if (s.mode == Mode::infer) return;
    diff_probabilities = product(d_out, k_turned, block_f32, false);
    diff_value = product(block_turned, d_out, of_keys, true);
    diff_query = product(block, k, of_queries, true);
    diff_key = product(block_turned, q, of_keys, true);
  }
  std::size_t scratch_bytes() const {
    std::size_t most = 0;
    for (const Call* call : {&scores, &weighted, &diff_probabilities, &diff_value, &diff_query, &diff_key})
      most = std::max(most, call->scratch_bytes());
    return most;
  }

 private:
  static Call product(const desc& a, const desc& b, const desc& result, bool add) {
    return onednn::matmul_call(a, b, desc(), result, Activation::none, add);
  }
};

// The products of one thread for whole blocks and for those at the end: [queries are fewer][keys are fewer].
struct ThreadProducts {
  BlockProducts of[2][2];
};

}  // namespace millrace::cpu::attention
