// Counts src/cuda/kernels/batch_norm.cu and merged_norm/*.cu.
#include "roofline/op_passes.hpp"

namespace millrace::roofline {
namespace {

double bits(const BatchNormSpec& s) { return double(s.src.count()) / 8; }
// At level 2 the convolution behind applies the gradient of the ReLU, so no bits are stored.
bool keeps_bits(const BatchNormSpec& s) { return s.activation == Activation::relu && !s.consumes_diff_sums; }

batch_norm::Layout layout(const BatchNormSpec& s) { return batch_norm::layout_of(s.src.count(), s.src[-1]); }
// Only plain norms have kernels that do the work of two passes.
bool is_plain(const BatchNormSpec& s) { return !s.residual_norm && !s.pool && !s.synchronised; }

// A value and a byte for each result of a max pool: where the maximum is.
double kept_maxima(const BatchNormSpec& s) { return tensor_bytes(s.dst(), s.dtype) + double(s.dst().count()); }

}  // namespace

void forward_passes(const BatchNormSpec& s, OpPasses& out) {
  const double tensor = tensor_bytes(s.src, s.dtype);
  const bool one_kernel = !s.consumes_sums && !s.produces_affine && s.mode == Mode::train && is_plain(s) &&
                          plan_forward(layout(s), int(size_of(s.dtype)), s.residual, out.on_chip).fits;
  if (!one_kernel) out.add(PassKind::norm_statistics, s.consumes_sums ? 0 : tensor);
  if (s.residual_norm) out.add(PassKind::norm_statistics, s.consumes_residual_sums ? 0 : tensor);
  if (s.synchronised) out.add(PassKind::norm_statistics, 0);  // combines those of the ranks
  if (s.produces_affine) return;                              // level 3: the convolution behind applies it
  if (s.pool) return out.add(PassKind::norm_apply, tensor + tensor_bytes(s.dst(), s.dtype) + kept_maxima(s));
  out.add(PassKind::norm_apply, (s.residual ? 3 : 2) * tensor + (keeps_bits(s) ? bits(s) : 0));
}

void backward_passes(const BatchNormSpec& s, OpPasses& out) {
  const double tensor = tensor_bytes(s.src, s.dtype), mask = keeps_bits(s) ? bits(s) : 0;
  if (s.pool) {
    const double pooled = tensor_bytes(s.dst(), s.dtype);
    out.add(PassKind::norm_gradient_sums, pooled + kept_maxima(s));
    if (out.wants_gradient(0)) out.add(PassKind::norm_gradient_apply, pooled + double(s.dst().count()) + 2 * tensor);
    return;
  }
  const double inputs = (s.residual_norm ? 3 : 2) * tensor + mask;
  const int results = int(out.wants_gradient(0)) + int(s.residual && out.wants_gradient(1));
  const bool one_kernel = !s.consumes_diff_sums && is_plain(s) && results > 0 &&
                          plan_backward(layout(s), int(size_of(s.dtype)), out.on_chip).fits;
  if (one_kernel) return out.add(PassKind::norm_gradient_apply, inputs + results * tensor + mask);
  out.add(PassKind::norm_gradient_sums, s.consumes_diff_sums ? 0 : inputs);
  if (s.synchronised) out.add(PassKind::norm_gradient_sums, 0);
  if (results > 0) out.add(PassKind::norm_gradient_apply, inputs + results * tensor);
}

}  // namespace millrace::roofline
