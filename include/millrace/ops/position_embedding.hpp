// Learned position embedding: dst[n, p, c] = src[n, p, c] + weight[p, c].
//
//   src[0], dst   (N, ..., C) in `dtype`
//   weight[0]     (..., C) in `dtype`
//
// The gradient of the weights is the sum of diff_dst over the rows; that of src equals diff_dst.
//
// class_token (Dosovitskiy et al. 2021): a learned vector is put before the positions of each row. Then the weights are
// added to all of them:
//
//   src[0]     (N, ..., C), with P positions
//   dst        (N, 1 + P, C)
//   weight[0]  (1 + P, C) in `dtype`
//   weight[1]  (C) float32, the vector. Its gradient equals that of the first row of weight[0], with which it is
//              requested
//
// window: in Mode::infer, the positions begin at StepState::position, as for AttentionSpec::window:
//
//   src[0], dst   (N, S, C)
//   weight[0]     (window, C)
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct PositionEmbeddingSpec {
  Shape src;
  bool class_token = false;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  std::int64_t window = 0;  // without a class token; 0: the positions begin at 0

  std::int64_t channels() const { return src[-1]; }
  Shape dst() const { return class_token ? Shape{src[0], 1 + src.row_count() / channels(), channels()} : src; }
  Shape weight() const {
    if (window > 0) return {window, channels()};
    const Shape of = dst();
    Shape out;
    for (int axis = 1; axis < of.rank; ++axis) out.dims[std::size_t(out.rank++)] = of[axis];
    return out;
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
