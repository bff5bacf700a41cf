// Scaled dot-product attention with several heads (Vaswani et al. 2017). For each row and head:
//
//   dst = softmax(scale * Q K^T) V with scale = 1 / sqrt(head_size)
//
//   src[0]   (N, S, (heads + 2 * key_heads) * head_size) in `dtype`: at each position the queries of all heads, then
//            the keys and then the values, as one linear layer computes them
//   dst      (N, S, heads * head_size)
//   saved    log of the sum of exponentials, (N, heads, S) float32
//
// causal: position q attends to the positions 0 ... q only. key_heads < heads: grouped queries (Ainslie et al. 2023);
// head h reads key head h / (heads / key_heads). The matrix of all scores, S x S, is not stored (Dao et al. 2022):
// blocks of it are computed in each direction. Only cuDNN's deterministic backward pass stores one for each head, of
// some rows at a time. Backward reads src and dst again.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct AttentionSpec {
  Shape src;
  std::int64_t heads = 1, key_heads = 1;
  bool causal = false;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  void check() const;  // Error(config) if heads do not divide the width, or key heads do not divide heads
  std::int64_t head_size() const { return src[-1] / (heads + 2 * key_heads); }
  std::int64_t positions() const { return src[1]; }
  Shape dst() const { return {src[0], src[1], heads * head_size()}; }
  // Of the scores that are needed: about half of them if causal. The two products of each direction count alike.
  double flops() const {
    const double s = double(positions()), scores = causal ? s * (s + 1) / 2 : s * s;
    return 4.0 * double(src[0]) * double(heads) * scores * double(head_size());
  }
  static constexpr bool keeps_src = true, keeps_dst = true;
};

}  // namespace millrace
