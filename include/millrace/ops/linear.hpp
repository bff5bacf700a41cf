// Linear layer: dst = activation(src * weight^T + bias).
//
//   src[0]      (N, ...), flattened to (N, in)
//   weight[0]   (out, in) in `dtype`
//   weight[1]   (out) float32, if bias
//   dst         (N, out)
//   saved       the value before the activation, if backward_reads_src(activation)
#pragma once
#include "millrace/ops/op.hpp"

namespace millrace {

struct LinearSpec {
  Shape src;
  std::int64_t out_features = 0;
  bool bias = true;
  Activation activation = Activation::none;
  bool need_diff_src = true;
  DType dtype = DType::f32;
  Mode mode = Mode::train;
  // Fusion level 1, in Mode::train: backward adds its result to diff_src instead of overwriting it. The sum is computed
  // in float32 and rounded once. Excludes produces_diff_pre.
  bool accumulates_diff_src = false;
  // Fusion level 2, in Mode::train, for a pair of layers: a linear layer with an activation, and a linear layer that is
  // the only reader of its result. In backward, the matrix product of the second layer also computes the gradient
  // before the activation of the first layer ("diff_pre") and, if the first layer has a bias, the gradient of that
  // bias.
  //
  // Set on the first layer. consumes_diff_pre: diff_dst is already the gradient before the activation.
  // consumes_diff_bias: the gradient of the bias is read from args.diff_bias.
  bool consumes_diff_pre = false, consumes_diff_bias = false;
  // Set on the second layer. produces_diff_pre: the activation of the first layer; backward writes the gradient before
  // it to diff_src, and reads args.src_saved. produces_diff_bias: backward writes the sums of that gradient over the
  // rows to args.src_diff_bias.
  Activation produces_diff_pre = Activation::none;
  bool produces_diff_bias = false;

  Shape dst() const { return {src[0], out_features}; }
  Shape weight() const { return {out_features, src.row_count()}; }
  double flops() const { return 2.0 * double(src.count()) * double(out_features); }
  bool keeps_dst() const { return activation != Activation::none && !backward_reads_src(activation); }
  static constexpr bool keeps_src = true;
};

}  // namespace millrace
