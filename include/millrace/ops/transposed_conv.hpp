// Transposed convolution in one to three dimensions: the gradient of a convolution with respect to its source, used as
// a layer. The definitions are those of PyTorch's ConvTranspose.
//
//   src[0]      (N, spatial..., C)
//   dst         (N, spatial'..., K), spatial' = (spatial - 1) stride - 2 pad + dilation (kernel - 1) + output_pad + 1
//   weight[0]   (C, kernel..., K / groups), in `dtype`: ConvTranspose's (C, K / groups, kernel...), channels last
//   weight[1]   (K) float32, if bias
#pragma once
#include <memory>

#include "millrace/ops/conv.hpp"

namespace millrace {

struct TransposedConvSpec {
  Shape src;
  std::int64_t out_channels = 0, groups = 1;
  Window window;
  std::int64_t output_pad = 0;  // more results at the end of each axis; below the stride
  bool bias = false;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const;
  // The convolution from dst to src with the same weight: its data gradient is this operation.
  ConvSpec conv() const;
  Shape weight() const { return conv().weight(); }
  double flops() const { return conv().flops(); }
  static constexpr bool keeps_src = true, keeps_dst = false;
};

// The operation by that convolution of a backend. A backend derives from it and adds the bias.
class TransposedConvOp : public Op {
 public:
  // conv: made from conv(). bias_bytes: of workspace for the two functions below.
  TransposedConvOp(const TransposedConvSpec&, std::unique_ptr<Op> conv, std::size_t bias_bytes);
  MemoryRequirements memory_requirements() const override;
  std::string implementation() const override { return conv_->implementation() + ", transposed"; }
  void repack(const OpArgs&) override;
  void forward(const OpArgs&) override;
  void backward(const OpArgs&) override;

 private:
  virtual void add_bias(const OpArgs&) = 0;           // weight[1] to dst
  virtual void sum_bias_gradient(const OpArgs&) = 0;  // of diff_dst into diff_weight[1]
  OpArgs of_conv(const OpArgs&) const;

  bool bias_;
  std::unique_ptr<Op> conv_;
  std::size_t bias_bytes_;
};

}  // namespace millrace
