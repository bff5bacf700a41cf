// Embedding: dst (N, T, width) = the rows of weight[0] (vocabulary, width), in `dtype`, that src[0] (N, T) numbers:
// tokens as stored, u8, u16 or i32, all below the vocabulary, which who reads them has checked. Backward reads src
// again; diff_weight[0] is the sum, for each token of the vocabulary, of the diff_dst at its places, in their order.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct EmbeddingSpec {
  Shape src;
  DType raw = DType::u8;  // of src
  std::int64_t vocabulary = 0, width = 0;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return {src[0], src[1], width}; }
  Shape weight() const { return {vocabulary, width}; }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

}  // namespace millrace
