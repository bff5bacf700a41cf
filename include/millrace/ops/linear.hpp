// Linear: dst = activation(src * weight^T + bias). src[0] (N, ...) flattened to (N, in); weight[0] (out, in) in
// `dtype`; weight[1] (out) float32 when bias. With gelu the pre-activation is kept in `saved`.
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

  Shape dst() const { return {src[0], out_features}; }
  Shape weight() const { return {out_features, src.row_count()}; }
  double flops() const { return 2.0 * double(src.count()) * double(out_features); }
  static constexpr bool keeps_src = true, keeps_dst = true;
};

}  // namespace millrace
