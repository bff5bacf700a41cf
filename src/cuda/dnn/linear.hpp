// Linear layers, made of the matrix multiplications of a library. The Cublas must outlive the operation.
#pragma once
#include "cuda/dnn/matmul.hpp"
#include "millrace/ops/linear.hpp"

namespace millrace::cuda {

std::unique_ptr<Op> make_linear(const LinearSpec&, const LaunchContext&, Cublas&);

// Implements Backend::why_not_fused. Fusion is rejected if cuBLAS does not support the gradient of the activation or
// the shape, if it has no kernel, or if the measured time of the fused kernel is longer than that of the plain kernel
// and of the passes over memory that fusion saves.
std::string why_not_fused(const LinearSpec&, Cublas&);

}  // namespace millrace::cuda
