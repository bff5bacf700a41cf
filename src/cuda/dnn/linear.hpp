// Linear layers, made of a library's products. The Cublas must outlive the op.
#pragma once
#include "cuda/dnn/matmul.hpp"
#include "millrace/ops/linear.hpp"

namespace millrace::cuda {

std::unique_ptr<Op> make_linear(const LinearSpec&, const LaunchContext&, Cublas&);

// Backend::why_not_fused: the activation or the shape is none that cuBLAS has a gradient for, or it has no kernel, or
// one that takes longer, as timed, than the plain one and the passes over memory that it replaces.
std::string why_not_fused(const LinearSpec&, Cublas&);

}  // namespace millrace::cuda
