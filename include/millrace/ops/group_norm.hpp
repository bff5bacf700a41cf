// Group norm (Wu and He 2018): the channels of each row are divided into groups of neighbours, and each group is
// normalised by its moments over all positions. With groups of one channel it is instance norm (Ulyanov et al. 2016).
// The definition and the constants are PyTorch's.
//
//   dst = (src - mean) / sqrt(variance + epsilon) * gamma + beta, with the biased variance
//
//   src[0], dst   (N, ..., C) in `dtype`
//   weight[0]     gamma, (C) float32, if affine; otherwise 1
//   weight[1]     beta, (C) float32, if affine; otherwise 0
//   saved         mean and 1 / sqrt(...) of each row and group; float32
//
// Backward reads src again. Sums over positions are computed in parts whose number depends only on the shape (CPU) or
// on the shape and the device (CUDA), and are added in order.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct GroupNormSpec {
  Shape src;
  std::int64_t groups = 1;
  float epsilon = 1e-5f;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  bool affine = true;

  Shape dst() const { return src; }
  std::int64_t channels() const { return src[-1]; }
  std::int64_t positions() const { return src.row_count() / src[-1]; }  // of a row
  // Error(config) if the input is empty or the groups do not divide its channels.
  void check() const;
  static constexpr bool keeps_src = true, keeps_dst = false;
};

}  // namespace millrace
