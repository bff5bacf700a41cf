// Learned position embedding: dst[n, p, c] = src[n, p, c] + weight[p, c].
//
//   src[0], dst   (N, ..., C) in `dtype`
//   weight[0]     (..., C) in `dtype`
//
// The gradient of the weights is the sum of diff_dst over the rows; that of src equals diff_dst.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct PositionEmbeddingSpec {
  Shape src;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  Shape weight() const {
    Shape out;
    for (int axis = 1; axis < src.rank; ++axis) out.dims[std::size_t(out.rank++)] = src[axis];
    return out;
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
