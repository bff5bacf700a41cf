// Batch norm (Ioffe & Szegedy 2015) over all axes but the last, optionally followed by a residual and an activation:
// dst = act(norm(src[0]) + src[1]). The residual may have a norm of its own: dst = act(norm(src[0]) + norm2(src[1])).
//
//   weight   [0] gamma, [1] beta, [2] running mean, [3] running variance; each (C) float32. The last two are read only
//            in Mode::infer. The running variance is unbiased as in PyTorch (biased if a channel has only one value).
//            With residual_norm: [0] gamma, [1] beta, [2] gamma2, [3] beta2, then [4] mean, [5] variance, [6] mean2,
//            [7] variance2.
//   stats    (2, C) float32. In Mode::train, forward writes or adds (stats_mode) N * state->row_weight * (mean,
//            variance) of this micro-batch of N samples. Once per step, the optimizer updates the running values with
//            the sum over micro-batches and ranks.
//            residual_stats: the same for norm2.
//   saved    batch mean, 1/std, and one bit per element that says whether the activation let it pass
//   dtype    type of src, dst and their gradients; statistics and arithmetic are float32
#pragma once
#include <optional>

#include "millrace/ops/pool.hpp"

namespace millrace {

struct BatchNormSpec {
  Shape src;
  float epsilon = 1e-5f;
  bool residual = false;
  bool residual_norm = false;                // fusion level 1: the residual is normalised too; requires `residual`
  Activation activation = Activation::none;  // none, relu, or relu6 where FusionRules::merges_norm()
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  // In Mode::train, with OpArgs::ranks: the statistics are over the micro-batches of all ranks, as of PyTorch's
  // SyncBatchNorm, and so are the sums of the gradient behind diff_src. The gradients of gamma and beta are those of
  // this rank. stats gets the same mean and variance on all ranks, times their own N. Not with residual_norm and pool.
  bool synchronised = false;
  // Fusion level 1: max pooling follows. Requires the ReLU, at most `max_taps` positions of a window, and no residual.
  // dst and diff_dst are those of the pool. saved: mean, 1/std, and for each element of dst its maximum in src and
  // where that was, or that the ReLU let nothing pass.
  std::optional<Window> pool = {};
  static constexpr std::int64_t max_taps = 255;
  // Fusion level 2, in Mode::train; ConvSpec has the matching producers.
  // forward reads args.sums instead of making a pass over src. The variance is then a difference of float32 sums, so
  // its relative error grows by a factor of (mean / std)^2.
  bool consumes_sums = false;
  bool consumes_residual_sums = false;  // the same for norm2 and args.residual_sums
  // forward writes args.moments and saves no ReLU bits. backward gets a diff_dst to which the ReLU was already applied,
  // and reads args.diff_sums instead of making a pass over diff_dst and src. Excludes `residual`.
  bool consumes_diff_sums = false;
  // Fusion level 3; requires consumes_diff_sums, an activation and no residual. forward writes args.affine instead of
  // dst. The bias is computed from the rounded scale, so only the rounding of the bias itself moves the result at the
  // mean. With u = 2^-11 (fp16), the result differs from the exact one by at most u * (|scale * (x - mean)| + |bias|)
  // before it is rounded. The second term is about what the rounding of x to 16 bits has already cost: u * |scale *
  // mean|.
  bool produces_affine = false;
  // Fusion level 3; requires consumes_diff_sums. backward writes args.diff_affine instead of diff_src, which shares the
  // memory of diff_dst: the convolution before the norm computes the gradient itself.
  bool produces_diff_affine = false;

  PoolSpec max_pool() const { return {src, PoolSpec::Kind::max, *pool, dtype, mode}; }
  Shape dst() const { return pool ? max_pool().dst() : src; }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

}  // namespace millrace
