// The Newton-Schulz steps of muon (ops/optimizer.hpp) for matrices of one shape. They are products of cuBLAS, so
// cuda/dnn has them, and the optimizer of cuda/kernels gets them from its caller.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace millrace::cuda {

// Device memory of NewtonSchulz::Workspace, and of the products.
struct OrthogonalizerMemory {
  float *x = nullptr, *other = nullptr, *gram = nullptr, *polynomial = nullptr;
  void* workspace = nullptr;  // workspace_bytes()
};

class Orthogonalizer {
 public:
  virtual ~Orthogonalizer() = default;
  virtual std::size_t workspace_bytes() const = 0;
  // x: row-major, with a Frobenius norm of at most 1. Only enqueues. Returns where the result is: x or other.
  virtual const float* run(const OrthogonalizerMemory&) = 0;
};

using MakeOrthogonalizer =
    std::function<std::unique_ptr<Orthogonalizer>(std::int64_t rows, std::int64_t columns, int steps)>;

}  // namespace millrace::cuda
