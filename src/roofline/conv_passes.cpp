// Counts src/cuda/dnn/conv.cpp and src/cuda/kernels/depthwise. Each call of cuDNN counts as one kernel.
#include "millrace/ops/conv.hpp"
#include "millrace/roofline/cuda_fusion.hpp"
#include "roofline/op_passes.hpp"

namespace millrace::roofline {
namespace {

struct ConvSizes {
  explicit ConvSizes(const ConvSpec& s) : dst(tensor_bytes(s.dst(), s.dtype)) {
    const std::int64_t channels = kernel_channels(s), own = s.src[-1] - s.padded_channels;
    const double element = double(size_of(s.dtype));
    src = tensor_bytes(s.src, s.dtype) / double(s.src[-1]) * double(channels);
    copies_src = channels != s.src[-1];
    copy = src + tensor_bytes(s.src, s.dtype);
    weight_count = double(s.weight().count());
    pads_weight = s.groups == 1 && channels != own;
    weight = weight_count * element * (pads_weight ? double(channels) / double(own) : 1);
  }
  double src = 0, dst, weight = 0, copy = 0;  // as the kernels read and write them; copy: of src into a padded one
  double weight_count = 0;                    // without padding
  bool copies_src = false, pads_weight = false;
};

// Depthwise kernels compute in float32, without tensor cores.
DType factors_of(const ConvSpec& s) { return is_depthwise(s) ? DType::f32 : s.dtype; }

}  // namespace

void forward_passes(const ConvSpec& s, OpPasses& out) {
  const ConvSizes size(s);
  if (size.copies_src) out.add(PassKind::padding, size.copy);
  out.add_product(PassKind::conv_forward, size.src + size.weight + size.dst, s.flops(), factors_of(s), is_depthwise(s));
}

void backward_passes(const ConvSpec& s, OpPasses& out) {
  const ConvSizes size(s);
  const Shape dst = s.dst();
  if (s.bias) out.add(PassKind::bias, size.dst, column_sum_launches(dst.count() / dst[-1]));
  if (size.copies_src) out.add(PassKind::padding, size.copy);
  // Otherwise a kernel moves it to the flat gradient, or adds up the sums of the depthwise kernel's blocks.
  const bool direct = s.dtype == DType::f32 && !size.pads_weight && !is_depthwise(s);
  const double gradient = direct ? gradient_bytes(size.weight_count, out.first) : size.weight;
  out.add_product(PassKind::conv_weight_gradient, size.src + size.dst + gradient, s.flops(), factors_of(s),
                  is_depthwise(s));
  if (!direct) out.add(PassKind::weights, size.weight + gradient_bytes(size.weight_count, out.first));
  if (!s.need_diff_src) return;
  const double src = tensor_bytes(s.src, s.dtype);
  double data = size.dst + tensor_bytes(s.weight(), s.dtype) + src;
  if (s.produces_diff_sums) data += src;    // the source of the norm before it
  if (s.accumulates_diff_src) data += src;  // the gradient so far
  out.add_product(PassKind::conv_data_gradient, data, s.flops(), factors_of(s), is_depthwise(s));
}

// src/ops/transposed_conv.cpp: by the engines of the convolution in the other direction.
void forward_passes(const TransposedConvSpec& s, OpPasses& out) {
  const double src = tensor_bytes(s.src, s.dtype), dst = tensor_bytes(s.dst(), s.dtype);
  out.add_product(PassKind::conv_data_gradient, src + tensor_bytes(s.weight(), s.dtype) + dst, s.flops(),
                  factors_of(s.conv()), is_depthwise(s.conv()));
  if (s.bias) out.add(PassKind::bias, 2 * dst);
}

void backward_passes(const TransposedConvSpec& s, OpPasses& out) {
  ConvSpec conv = s.conv();
  conv.need_diff_src = false;
  if (s.bias) {
    const Shape dst = s.dst();
    out.add(PassKind::bias, tensor_bytes(dst, s.dtype), column_sum_launches(dst.count() / dst[-1]));
  }
  backward_passes(conv, out);  // the gradient of the weight
  if (out.wants_gradient(0)) forward_passes(conv, out);
}

void weight_copies(const ConvSpec& s, OpPasses& out) {
  const ConvSizes size(s);
  if (size.pads_weight) out.add(PassKind::weights, size.weight_count * double(size_of(s.dtype)) + size.weight);
  if (s.bias && s.dtype != DType::f32 && !is_depthwise(s))
    out.add(PassKind::weights, 0);  // the forward engine adds a 16-bit bias
}

}  // namespace millrace::roofline
