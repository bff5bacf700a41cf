// Convolution (a cross-correlation, as in all deep-learning libraries) in one to three dimensions, with stride,
// padding, dilation, groups and bias.
//
//   src[0]      (N, spatial..., C)
//   dst         (N, spatial'..., K)
//   weight[0]   (K, kernel..., (C - padded_channels) / groups), in `dtype`
//   weight[1]   (K) float32, if bias
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
  // Fusion level 1: this many of the last channels of src are zero and have no weights. Requires groups = 1 and
  // need_diff_src = false.
  std::int64_t padded_channels = 0;
  // Fusion level 1, in Mode::train: backward adds its result to diff_src instead of overwriting it. The sum is computed
  // in float32 and rounded once. Excludes produces_diff_sums.
  bool accumulates_diff_src = false;
  // Fusion level 2, in Mode::train; BatchNormSpec has the matching consumers.
  // forward writes args.sums of dst, either of the float32 values or of the values rounded to dtype.
  bool produces_sums = false;
  // src is act(norm(x)), and no other operation reads it. backward applies the gradient of that activation before it
  // writes diff_src, and writes args.diff_sums of the result. It reads args.norm_src (x), args.moments, and gamma and
  // beta as weight[2] and weight[3], (C) float32.
  bool produces_diff_sums = false;
  Activation norm_activation = Activation::relu;  // act: relu, or relu6 where FusionRules::merges_norm()
  // Fusion level 3; requires produces_diff_sums. args.src[0] is x, not act(norm(x)): forward and the gradient of the
  // weight compute act(norm(x)) while they read it: on GPUs from args.affine, on the CPU from args.moments, gamma and
  // beta. Padding is zero after that.
  bool normalises_src = false;
  // Fusion level 3, where FusionRules::applies_norm_gradient(). args.diff_dst is g, the gradient of the result of the
  // norm behind this convolution. backward computes the gradient of dst while it reads g, from args.dst and
  // args.diff_affine.
  bool normalises_diff_dst = false;

  Shape dst() const;
  Shape weight() const;
  double flops() const;  // of one forward pass; a multiplication and an addition count as two
  static constexpr bool keeps_src = true;
  bool keeps_dst() const { return normalises_diff_dst; }
};

// Convolutions in which each channel has a kernel of its own. Backends may compute them in another way than the rest.
inline bool is_depthwise(const ConvSpec& s) {
  return s.groups > 1 && s.groups == s.src[-1] && s.groups == s.out_channels;
}

// Why the CUDA backend does not fuse them with a norm (fusion levels 2 and 3).
constexpr const char* depthwise_sums_no_norm = "the kernels of depthwise convolutions compute no sums and no norm";

}  // namespace millrace
