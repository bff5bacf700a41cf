// Linear: dst = activation(src * weight^T + bias). src[0] (N, ...) flattened to (N, in); weight[0] (out, in) in
// `dtype`; weight[1] (out) float32 when bias. The pre-activation is kept in `saved` where
// backward_reads_src.
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
  // Fusion level 2, in Mode::train: a layer with an activation, and the linear layer behind it that alone reads its
  // dst, whose product makes the gradient before the activation ("pre") and, where the first has a bias, that one's
  // too. At the layer before: diff_dst is the gradient before the activation already; args.diff_bias is given.
  bool consumes_diff_pre = false, consumes_diff_bias = false;
  // At the layer behind, the other's activation: src is its result, backward writes to diff_src the gradient before it,
  // with args.src_saved, and its sums over the rows to args.src_diff_bias.
  Activation produces_diff_pre = Activation::none;
  bool produces_diff_bias = false;

  Shape dst() const { return {src[0], out_features}; }
  Shape weight() const { return {out_features, src.row_count()}; }
  double flops() const { return 2.0 * double(src.count()) * double(out_features); }
  static constexpr bool keeps_src = true, keeps_dst = true;
};

}  // namespace millrace
