// Products by cuBLASLt, each with the kernel that was chosen for it.
#pragma once
#include <memory>

#include "cuda/dnn/matmul.hpp"
#include "cuda/dnn/plan_selector.hpp"

namespace millrace::cuda {

struct CublasOptions {
  bool tf32 = false;                        // float32 inputs rounded to 10 bits of mantissa: faster, 1e-3 off
  std::size_t workspace_bytes = 32u << 20;  // at most, for one product
};

// On the current device. The choices outlive the result; candidates are timed where memory allows.
std::unique_ptr<Cublas> make_cublas(const LaunchContext&, PlanSelector&, const CublasOptions& = {});
std::size_t cublas_version();

// Uniform in [-1, 1): products of zeros are faster than real ones.
void fill_random(const LaunchContext&, void* values, DType, std::int64_t count);

}  // namespace millrace::cuda
