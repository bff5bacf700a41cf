// Counts src/cuda/kernels/batch_norm.cu.
#include "roofline/op_passes.hpp"

namespace millrace::roofline {
namespace {

double bits(const BatchNormSpec& s) { return double(s.src.count()) / 8; }
// At level 2 the convolution behind applies the gradient of the ReLU, so no bits are stored.
bool keeps_bits(const BatchNormSpec& s) { return s.activation == Activation::relu && !s.consumes_diff_sums; }

}  // namespace

void forward_passes(const BatchNormSpec& s, OpPasses& out) {
  const double tensor = tensor_bytes(s.src, s.dtype);
  out.add(PassKind::norm_statistics, s.consumes_sums ? 0 : tensor);
  if (out.unbuilt.norm_in_next_conv && s.consumes_diff_sums) return;
  out.add(PassKind::norm_apply, (s.residual ? 3 : 2) * tensor + (keeps_bits(s) ? bits(s) : 0));
}

void backward_passes(const BatchNormSpec& s, OpPasses& out) {
  const double tensor = tensor_bytes(s.src, s.dtype);
  const double inputs = 2 * tensor + (keeps_bits(s) ? bits(s) : 0);
  out.add(PassKind::norm_gradient_sums, s.consumes_diff_sums ? 0 : inputs);
  const int results = int(out.wants_gradient(0)) + int(s.residual && out.wants_gradient(1));
  if (results > 0) out.add(PassKind::norm_gradient_apply, inputs + results * tensor);
}

}  // namespace millrace::roofline
