// Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019): each position, a vector of C values, is
// normalised by its own moments. The definitions and the constants are PyTorch's.
//
//   layer   dst = (src - mean) / sqrt(variance + epsilon) * gamma + beta, with the biased variance
//   rms     dst = src / sqrt(mean of src^2 + epsilon) * gamma; it has no beta
//
//   src[0], dst   (N, ..., C) in `dtype`
//   weight[0]     gamma, (C) float32, if weight; otherwise 1
//   weight[1]     beta, (C) float32, if bias
//   saved         for each position: the mean (layer), then for each position: 1 / sqrt(...); float32
//
// Backward reads src again. Sums over positions are computed in parts whose number depends only on the shape (CPU) or
// on the shape and the device (CUDA), and are added in order.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct LayerNormSpec {
  enum class Kind { layer, rms };
  Shape src;
  Kind kind = Kind::layer;
  bool bias = true;  // false for rms
  float epsilon = 1e-5f;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  // Fusion level 1: backward adds to diff_src[0], in float32, instead of writing it.
  bool accumulates_diff_src = false;
  bool weight = true;  // without one there is no bias

  Shape dst() const { return src; }
  std::int64_t channels() const { return src[-1]; }
  std::int64_t positions() const { return src.count() / src[-1]; }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

}  // namespace millrace
