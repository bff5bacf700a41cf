// Batch norm over all axes but the last, with an optional residual and ReLU fused behind it: dst = act(norm(src[0]) +
// src[1]). Ioffe & Szegedy 2015; running variance unbiased as in PyTorch (biased when there is one value a channel).
// weight[0] gamma, weight[1] beta, weight[2] running mean, weight[3] running variance: (C) float32, the last two read
// in Mode::infer only. In Mode::train, forward writes or adds (stats_mode) to stats (2, C) this micro-batch's rows *
// state->row_weight * (mean, variance); the optimizer folds the sum over micro-batches and ranks into the running
// values, once a step. saved: batch mean, 1/std, ReLU bits. dtype: of src, dst and their gradients. Statistics and
// arithmetic are float32.
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct BatchNormSpec {
  Shape src;
  float epsilon = 1e-5f;
  bool residual = false;
  Activation activation = Activation::none;  // none or relu
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  // Fusion level 2, in Mode::train (conv.hpp has the other side).
  // forward reads args.sums in place of a pass over src. The variance is then a difference of float32 sums: of its
  // relative precision the factor (mean / std)^2 is lost.
  bool consumes_sums = false;
  // forward writes args.moments and keeps no ReLU bits; backward is given a diff_dst that has passed the ReLU, and
  // args.diff_sums in place of a pass over diff_dst and src.
  bool consumes_diff_sums = false;

  Shape dst() const { return src; }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

}  // namespace millrace
