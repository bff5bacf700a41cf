// Counts the kernels of operations with constant tables, and of attention that is written out.
#include "roofline/op_passes.hpp"

namespace millrace::roofline {

void forward_passes(const GatherSpec& s, OpPasses& out) { out.add(PassKind::add, 2 * tensor_bytes(s.to, s.dtype)); }
void backward_passes(const GatherSpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) out.add(PassKind::add, tensor_bytes(s.src, s.dtype) + tensor_bytes(s.to, s.dtype));
}

void forward_passes(const AffineSpec& s, OpPasses& out) {
  out.add(PassKind::activation, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const AffineSpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) forward_passes(s, out);
}

void forward_passes(const PowerSpec& s, OpPasses& out) {
  out.add(PassKind::activation, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const PowerSpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) out.add(PassKind::activation, 3 * tensor_bytes(s.src, s.dtype));
}

void forward_passes(const PreluSpec& s, OpPasses& out) {
  out.add(PassKind::activation, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const PreluSpec& s, OpPasses& out) {  // with the sums of the parts of the rows
  if (s.slopes == 0 && !out.wants_gradient(0)) return;
  int sums = s.slopes == 0 ? 0 : column_sum_launches(s.src.count() / s.channels());
  if (s.slopes == 1 && s.channels() > 1) sums += column_sum_launches(s.channels());
  out.add(PassKind::activation, (out.wants_gradient(0) ? 3 : 2) * tensor_bytes(s.src, s.dtype), 1 + sums);
}

void forward_passes(const IndexedBiasSpec& s, OpPasses& out) {
  out.add(PassKind::add, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const IndexedBiasSpec& s, OpPasses& out) {  // the sums of the positions, and those of the entries
  if (out.wants_gradient(0)) forward_passes(s, out);
  out.add(PassKind::add, tensor_bytes(s.src, s.dtype), 1 + column_sum_launches(s.groups()));
}

void forward_passes(const SoftmaxSpec& s, OpPasses& out) {
  out.add(PassKind::activation, 2 * tensor_bytes(s.src, s.dtype));
}
void backward_passes(const SoftmaxSpec& s, OpPasses& out) {
  if (out.wants_gradient(0)) out.add(PassKind::activation, 3 * tensor_bytes(s.src, s.dtype));
}

void forward_passes(const BatchedMatmulSpec& s, OpPasses& out) {
  out.add_product(PassKind::attention, forward_cost(s).bytes, s.flops(), s.dtype);
}
void backward_passes(const BatchedMatmulSpec& s, OpPasses& out) {
  for (const std::size_t src : {0, 1})
    if (out.wants_gradient(src)) forward_passes(s, out);
}

}  // namespace millrace::roofline
