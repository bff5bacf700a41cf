// Matrix multiplications with cuBLASLt, each with the kernel that was chosen for it.
#pragma once
#include <memory>

#include "cuda/dnn/matmul.hpp"
#include "millrace/plans/plan_selector.hpp"

namespace millrace::cuda {

struct CublasOptions {
  bool tf32 = false;  // round float32 inputs to 10 bits of mantissa: faster, with relative errors of 1e-3
  std::size_t workspace_bytes = 32u << 20;  // limit for one multiplication
  double copy_bytes_per_second = 0;         // copy_bytes_per_second(); 0: not known
};

// For the current device. The PlanSelector must outlive the result. Candidates are timed if there is enough free device
// memory.
std::unique_ptr<Cublas> make_cublas(const LaunchContext&, PlanSelector&, const CublasOptions& = {});
std::size_t cublas_version();
constexpr int cublas_candidates = 16;  // at most so many are timed for a multiplication

// Fills an array with uniform random values in [-1, 1). Timing needs them, because kernels run faster on zeros.
void fill_random(const LaunchContext&, void* values, DType, std::int64_t count);

}  // namespace millrace::cuda
