// Counts src/cuda/dnn/recurrent.cpp: W_ih x of all steps in one product, and a product and a kernel for each step.
#include "roofline/op_passes.hpp"

namespace millrace::roofline {
namespace {

struct RecurrentSizes {
  explicit RecurrentSizes(const RecurrentSpec& s)
      : src(tensor_bytes(s.src, s.dtype)),
        dst(tensor_bytes(s.dst(), s.dtype)),
        step_state(double(s.rows() * s.units) * sizeof(float)),
        step_gates(double(s.rows() * s.width()) * sizeof(float)),
        step_diff(double(s.rows() * s.width()) * double(size_of(s.dtype))),
        weight_ih(tensor_bytes(s.weight_ih(), s.dtype)),
        weight_hh(tensor_bytes(s.weight_hh(), s.dtype)),
        flops_ih(2.0 * double(s.rows() * s.steps()) * double(s.weight_ih().count())),
        step_flops(2.0 * double(s.rows()) * double(s.weight_hh().count())),
        steps(double(s.steps())),
        diffs(s.kind == RecurrentSpec::Kind::gru ? 2 : 1) {}
  double src, dst;
  double step_state, step_gates, step_diff;  // of one step
  double weight_ih, weight_hh, flops_ih, step_flops, steps;
  int diffs;  // arrays of gradients before the gates' functions
};

}  // namespace

void forward_passes(const RecurrentSpec& s, OpPasses& out) {
  const RecurrentSizes size(s);
  out.add(PassKind::add, 2 * size.src);  // into the order of the steps
  out.add_product(PassKind::linear_forward, size.src + size.weight_ih + size.steps * size.step_gates, size.flops_ih,
                  s.dtype);
  for (std::int64_t step = 1; step < s.steps(); ++step)
    out.add_product(PassKind::linear_forward, size.weight_hh + size.step_gates + size.dst / size.steps, size.step_flops,
                    s.dtype);
  out.add(PassKind::activation, size.steps * (3 * size.step_gates + 2 * size.step_state) + 2 * size.dst,
          int(s.steps()));
}

void backward_passes(const RecurrentSpec& s, OpPasses& out) {
  const RecurrentSizes size(s);
  const double diff = size.steps * size.step_diff;
  out.add(PassKind::add, 2 * size.src);
  out.add(PassKind::activation, size.steps * (size.step_gates + 5 * size.step_state) + size.dst + size.diffs * diff,
          int(s.steps()));
  for (std::int64_t step = 1; step < s.steps(); ++step)
    out.add_product(PassKind::linear_data_gradient, size.weight_hh + size.step_diff + size.step_state, size.step_flops,
                    s.dtype);
  out.add_product(PassKind::linear_weight_gradient,
                  size.src + diff + gradient_bytes(double(s.weight_ih().count()), out.first), size.flops_ih, s.dtype);
  out.add_product(PassKind::linear_weight_gradient,
                  size.dst + diff + gradient_bytes(double(s.weight_hh().count()), out.first),
                  size.step_flops * size.steps, s.dtype);
  if (s.bias) out.add(PassKind::bias, 2 * diff, 2 * column_sum_launches(s.rows() * s.steps()));
  if (!out.wants_gradient(0)) return;
  out.add_product(PassKind::linear_data_gradient, size.src + diff + size.weight_ih, size.flops_ih, s.dtype);
  out.add(PassKind::add, 2 * size.src);
}

}  // namespace millrace::roofline
