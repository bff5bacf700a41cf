// Counts src/cuda/dnn/linear.cpp, if cuBLASLt has a kernel for each epilogue.
#include "roofline/op_passes.hpp"

namespace millrace::roofline {
namespace {

struct LinearSizes {
  explicit LinearSizes(const LinearSpec& s)
      : src(tensor_bytes(s.src, s.dtype)),
        dst(tensor_bytes(s.dst(), s.dtype)),
        weight(tensor_bytes(s.weight(), s.dtype)),
        weight_count(double(s.weight().count())) {}
  double src, dst, weight, weight_count;
};

// Whether the product applies the activation, in its epilogue.
bool fused_activation(const LinearSpec& s) {
  if (s.activation == Activation::relu) return true;
  const bool keeps = s.mode == Mode::train;  // the argument of gelu_tanh, whose rows must then be aligned
  return s.activation == Activation::gelu_tanh && (!keeps || s.out_features % 8 == 0);
}

// Whether the weight product also sums the bias gradient.
bool fused_bias_gradient(const LinearSpec& s) {
  return s.dtype != DType::f32 && s.src[0] % 8 == 0 && s.src.row_count() % 8 == 0 && s.out_features % 8 == 0;
}

// What an epilogue keeps of the argument of an activation, for a tensor of so many bytes: the argument itself, or a
// bit.
double kept_bytes(Activation kind, double tensor, DType dtype) {
  return kind == Activation::gelu_tanh ? tensor : tensor / double(size_of(dtype)) / 8;
}

void bias_gradient(const LinearSpec& s, const LinearSizes& size, OpPasses& out) {
  if (s.consumes_diff_bias)
    out.add(PassKind::bias, 0);
  else if (!fused_bias_gradient(s))
    out.add(PassKind::bias, size.dst, column_sum_launches(s.src[0]));
  else if (!out.first)
    out.add(PassKind::bias, 0);  // the product can only write a bias gradient
}

}  // namespace

void forward_passes(const LinearSpec& s, OpPasses& out) {
  const LinearSizes size(s);
  double bytes = size.src + size.weight + size.dst;
  const bool keeps_argument = s.activation == Activation::gelu_tanh && s.mode == Mode::train;
  if (fused_activation(s) && (keeps_argument || s.consumes_diff_pre))
    bytes += kept_bytes(s.activation, size.dst, s.dtype);
  out.add_product(PassKind::linear_forward, bytes, s.flops(), s.dtype);
  if (s.activation != Activation::none && !fused_activation(s)) out.add(PassKind::activation, 2 * size.dst);
}

void backward_passes(const LinearSpec& s, OpPasses& out) {
  const LinearSizes size(s);
  if (s.activation != Activation::none && !s.consumes_diff_pre) out.add(PassKind::activation, 3 * size.dst);
  out.add_product(PassKind::linear_weight_gradient, size.src + size.dst + gradient_bytes(size.weight_count, out.first),
                  s.flops(), s.dtype);
  if (s.bias) bias_gradient(s, size, out);
  if (!s.need_diff_src) return;
  double data = size.dst + size.weight + size.src;
  if (s.produces_diff_pre != Activation::none) data += kept_bytes(s.produces_diff_pre, size.src, s.dtype);
  if (s.accumulates_diff_src) data += size.src;
  out.add_product(PassKind::linear_data_gradient, data, s.flops(), s.dtype);
}

void forward_passes(const LinearCrossEntropySpec& s, OpPasses& out) {
  OpPasses later = out.adding();
  for (std::int64_t chunk = 0; chunk < s.chunks(); ++chunk) {
    OpPasses& of = chunk == 0 ? out : later;
    forward_passes(s.chunk_linear(), of);
    forward_passes(s.chunk_loss(), of);
    if (s.loss.mode == Mode::train) backward_passes(s.chunk_linear(), of);
  }
}

void weight_copies(const LinearSpec& s, OpPasses& out) {
  if (s.bias && s.dtype != DType::f32) out.add(PassKind::weights, 0);  // the product adds a 16-bit bias
}

}  // namespace millrace::roofline
