// Embedding: looks up one row of a table for each token.
//
//   src[0]      tokens, (N, T), in the stored type: u8, u16 or i32. They must be smaller than `vocabulary`; the reader
//               of the data checks that.
//   weight[0]   the table, (vocabulary, width), in `dtype`
//   dst         (N, T, width)
//
// Backward reads src again. Row t of diff_weight[0] is the sum of diff_dst over all positions of token t, added in the
// order of the positions. That of the row `padding` is zero: its gradient leaves out what this operation would add.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct EmbeddingSpec {
  Shape src;
  DType raw = DType::u8;  // type of src
  std::int64_t vocabulary = 0, width = 0;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  std::int64_t padding = -1;  // the token whose row gets no gradient from here (PyTorch's padding_idx); -1: none

  Shape dst() const { return {src[0], src[1], width}; }
  Shape weight() const { return {vocabulary, width}; }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

}  // namespace millrace
