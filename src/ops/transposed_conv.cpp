#include "millrace/ops/transposed_conv.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {

Shape TransposedConvSpec::dst() const {
  if (groups < 1 || out_channels < 1 || src[-1] % groups || out_channels % groups)
    fail(Exit::config, "transposed conv: {} groups do not divide both {} input channels and {} output channels", groups,
         src[-1], out_channels);
  if (window.rank < 1 || window.rank > 3 || src.spatial_rank() != window.rank)
    fail(Exit::config,
         "transposed conv: input {} has {} spatial dimensions, but the window has {}. both must have the same number, "
         "from 1 to 3",
         src.str(), src.spatial_rank(), window.rank);
  Shape dst = src;
  dst[-1] = out_channels;
  for (std::size_t a = 0; a < std::size_t(window.rank); ++a) {
    const std::int64_t reach = window.dilation[a] * (window.kernel[a] - 1);
    if (window.kernel[a] < 1 || window.stride[a] < 1 || window.dilation[a] < 1 || window.pad[a] < 0 || output_pad < 0)
      fail(Exit::config, "transposed conv: kernel, stride and dilation must be at least 1, and padding at least 0");
    if (output_pad >= window.stride[a])
      fail(Exit::config, "transposed conv: output_pad {} must be below the stride {}", output_pad, window.stride[a]);
    std::int64_t& extent = dst[1 + int(a)];
    if (extent > 1 && window.stride[a] > (std::int64_t(1) << 40) / (extent - 1))
      fail(Exit::config, "transposed conv: input {} is too large for a stride of {}", src.str(), window.stride[a]);
    extent = (extent - 1) * window.stride[a] - 2 * window.pad[a] + reach + output_pad + 1;
    if (extent < 1)
      fail(Exit::config, "transposed conv: input {} has no result with a kernel of {} and a padding of {}. use less",
           src.str(), window.kernel[a], window.pad[a]);
  }
  return dst;
}

ConvSpec TransposedConvSpec::conv() const {
  ConvSpec conv;
  conv.src = dst();
  conv.out_channels = src[-1];
  conv.groups = groups;
  conv.window = window;
  conv.dtype = dtype;
  conv.mode = Mode::train;  // the forward pass is its data gradient
  MR_CHECK(conv.dst() == src, "a transposed convolution of {} has another source {}", src.str(), conv.dst().str());
  return conv;
}

TransposedConvOp::TransposedConvOp(const TransposedConvSpec& spec, std::unique_ptr<Op> conv, std::size_t bias_bytes)
    : bias_(spec.bias), conv_(std::move(conv)), bias_bytes_(bias_bytes) {}

MemoryRequirements TransposedConvOp::memory_requirements() const {
  MemoryRequirements needs = conv_->memory_requirements();
  needs.workspace = std::max(needs.workspace, bias_bytes_);
  return needs;
}

OpArgs TransposedConvOp::of_conv(const OpArgs& args) const {
  OpArgs conv;
  conv.weight[0] = args.weight[0];
  conv.packed_weights = args.packed_weights;
  conv.saved = args.saved;
  conv.workspace = args.workspace;
  conv.state = args.state;
  return conv;
}

void TransposedConvOp::repack(const OpArgs& args) { conv_->repack(of_conv(args)); }

void TransposedConvOp::forward(const OpArgs& args) {
  OpArgs conv = of_conv(args);
  conv.diff_dst = args.src[0];
  conv.diff_src[0] = args.dst;
  conv_->backward(conv);
  if (bias_) add_bias(args);
}

void TransposedConvOp::backward(const OpArgs& args) {
  if (args.diff_weight[1]) sum_bias_gradient(args);
  OpArgs conv = of_conv(args);
  conv.src[0] = args.diff_dst;
  if (args.diff_weight[0]) {
    conv.diff_dst = args.src[0];
    conv.diff_weight[0] = args.diff_weight[0];
    conv.mode[0] = args.mode[0];
    conv_->backward(conv);
  }
  if (!args.diff_src[0]) return;
  conv = of_conv(args);
  conv.src[0] = args.diff_dst;
  conv.dst = args.diff_src[0];
  conv_->forward(conv);
}

}  // namespace millrace
