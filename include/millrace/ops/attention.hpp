// Scaled dot-product attention with several heads (Vaswani et al. 2017). For each row and head:
//
//   dst = dropout(softmax(scale * Q K^T)) V with scale = 1 / sqrt(head_size)
//
//   src[0]   (N, S, (heads + 2 * key_heads) * head_size) in `dtype`: at each position the queries of all heads, then
//            the keys and then the values, as one linear layer computes them
//   src[1]   sample ids, (N) int64; with dropout or documents
//   src[2]   where the document of each position begins, (N, S) int32, as documents.hpp has it; with documents
//   dst      (N, S, heads * head_size)
//   saved    log of the sum of exponentials, (N, heads, S) float32; with dropout, a backend may save more
//
// causal: position q attends to the positions 0 ... q only. documents: only to those of its own document; it needs
// causal. key_heads < heads: grouped queries (Ainslie et al. 2023); head h reads key head h / (heads / key_heads). The
// matrix of all scores, S x S, is not stored (Dao et al. 2022): blocks of it are computed in each direction. Only
// cuDNN's deterministic backward pass stores one for each head, of some rows at a time. Backward reads all src and dst
// again.
//
// dropout: in Mode::train, a probability is divided by 1 - dropout or becomes zero. attention_dropout.hpp says which;
// backward finds them again. cuDNN's engines draw others (src/cuda/dnn/attention.cpp).
//
// queries: only the positions [first_query, first_query + queries) ask; dst and diff_dst hold these, and the gradients
// of the other queries are zero. It excludes a window.
//
// window: incremental inference, on S positions of a text at a time. src holds the positions [p, p + S), where p is
// StepState::position and p + S <= window. The operation stores their keys and values in its cache, which holds those
// of all earlier positions, and each position attends to all up to itself. window needs causal and Mode::infer, and
// excludes documents. Size and layout of the cache do not depend on S, so operations of different S can share one.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct AttentionSpec {
  Shape src;
  std::int64_t heads = 1, key_heads = 1;
  bool causal = false;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  float dropout = 0;
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;  // of dropout: as of DropoutSpec, counted together with those
  bool documents = false;
  std::int64_t window = 0;                    // positions of the cache; 0: there is none
  std::int64_t first_query = 0, queries = 0;  // 0: all positions ask

  // Error(config) if heads do not divide the width, if key heads do not divide heads, if the dropout is not in [0, 1),
  // for documents without causal, for what a window excludes, or if there are not so many positions.
  void check() const;
  std::int64_t head_size() const { return src[-1] / (heads + 2 * key_heads); }
  std::int64_t positions() const { return src[1]; }
  std::int64_t asking() const { return queries > 0 ? queries : positions(); }
  bool drops() const { return dropout > 0 && mode == Mode::train; }
  Shape dst() const { return {src[0], asking(), heads * head_size()}; }
  // Of the scores that are needed: about half of them if causal. Documents are not known before the batch, so a row
  // counts as one, and a window as full. The two products of each direction count alike.
  double flops() const {
    const double asked = double(asking()), scores = window > 0 ? asked * double(window)
                                                    : causal   ? asked * (double(first_query) + (asked + 1) / 2)
                                                               : asked * double(positions());
    return 4.0 * double(src[0]) * double(heads) * scores * double(head_size());
  }
  static constexpr bool keeps_src = true, keeps_dst = true;
};

}  // namespace millrace
