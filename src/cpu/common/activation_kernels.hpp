// The activation functions over arrays of float.
#pragma once
#include <cstdint>

#include "millrace/device/tensor.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cpu {

struct ActivationKernels {
  void (*forward)(float* y, const float* x, std::int64_t n) = nullptr;
  // kept: x if backward_reads_src(), otherwise y.
  void (*backward)(float* dx, const float* dy, const float* kept, std::int64_t n) = nullptr;
};
// Null for Activation::none.
ActivationKernels activation_kernels(Activation);

// Over whole tensors of any type, on all threads. `kept` as above.
void activate(Activation, const Tensor& dst, const Tensor& src);
void activate_backward(Activation, const Tensor& diff_src, const Tensor& diff_dst, const Tensor& kept);

}  // namespace millrace::cpu
