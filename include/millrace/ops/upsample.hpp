// Upsampling of all spatial axes by a whole factor.
//
//   src[0]   (N, spatial..., C)
//   dst      (N, factor * spatial..., C)
//
// nearest: dst[o] = src[o / factor]. linear: linear, bilinear or trilinear interpolation between the centres of the
// elements, the edges continued, as PyTorch's upsample with align_corners=False. Along one axis, dst[o] lies at
// x = (o + 0.5) / factor - 0.5 of src, limited to its extent. The gradient is that of these sums.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct UpsampleSpec {
  enum class Kind { nearest, linear };
  Shape src;
  Kind kind = Kind::nearest;
  std::int64_t factor = 2;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const {
    Shape out = src;
    for (int axis = 1; axis + 1 < src.rank; ++axis) out[axis] *= factor;
    return out;
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
