// Convolution (cross-correlation, as in every deep-learning library), 1-D to 3-D, with stride, padding, dilation,
// groups and bias. src[0] (N, spatial..., C), dst (N, spatial'..., K); weight[0] (K, kernel..., C/groups) in `dtype`;
// weight[1] (K) float32 when bias. With zero_channels C is, for weight[0], less by them.
#pragma once
#include "millrace/ops/op.hpp"
#include "millrace/ops/spatial.hpp"

namespace millrace {

struct ConvSpec {
  Shape src;
  std::int64_t out_channels = 0, groups = 1;
  Window window;
  bool bias = false;
  bool need_diff_src = true;  // false for the first layer
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  // Fusion level 1: the last channels of src, all zero, which have no weights. Without groups and need_diff_src.
  std::int64_t padded_channels = 0;
  // Fusion level 2, in Mode::train (batch_norm.hpp has the other side).
  bool produces_sums = false;  // forward writes args.sums of dst, as it is in float32 or rounded to dtype
  // src is relu(norm(x)), and nobody else reads it: backward writes to diff_src what that ReLU lets pass of the
  // gradient, and args.diff_sums of it. Reads args.norm_src (x), args.moments, weight[2] gamma and weight[3] beta (C)
  // float32.
  bool produces_diff_sums = false;

  Shape dst() const;
  Shape weight() const;
  double flops() const;  // of one forward pass; multiply and add count as two
  static constexpr bool keeps_src = true, keeps_dst = false;
};

}  // namespace millrace
