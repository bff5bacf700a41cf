// The Newton-Schulz steps of muon with cuBLASLt, in float32; with TF32 if the Cublas uses it.
#pragma once
#include "cuda/dnn/matmul.hpp"
#include "cuda/kernels/orthogonalizer.hpp"

namespace millrace::cuda {

std::unique_ptr<Orthogonalizer> make_newton_schulz(std::int64_t rows, std::int64_t columns, int steps,
                                                   const LaunchContext&, Cublas&);

}  // namespace millrace::cuda
