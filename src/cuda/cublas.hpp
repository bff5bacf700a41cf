// Products by cuBLASLt.
#pragma once
#include <memory>

#include "matmul.hpp"

namespace millrace::cuda {

struct CublasOptions {
  bool tf32 = false;                        // float32 inputs rounded to 10 bits of mantissa: faster, 1e-3 off
  bool tune = true;                         // time the candidates, where memory allows. false: cuBLAS's first guess,
                                            // the same in every run
  std::size_t workspace_bytes = 32u << 20;  // at most, for one product
};

// On the current device.
std::unique_ptr<Cublas> make_cublas(const Context&, const CublasOptions& = {});

// Uniform in [-1, 1): products of zeros are faster than real ones.
void fill_random(const Context&, void* values, DType, std::int64_t count);

}  // namespace millrace::cuda
