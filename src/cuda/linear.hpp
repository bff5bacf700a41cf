// Linear layers, made of a library's products. The Cublas must outlive the op.
#pragma once
#include "matmul.hpp"
#include "millrace/ops/linear.hpp"

namespace millrace::cuda {

std::unique_ptr<Op> make_linear(const LinearSpec&, const Context&, Cublas&);

}  // namespace millrace::cuda
