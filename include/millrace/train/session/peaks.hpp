// What this device can do at best, measured through the very operations that train: the rooflines of an account. No
// table of names and data sheets.
#pragma once
#include <string>

#include "millrace/compute/execution_context.hpp"

namespace millrace {

struct Peaks {
  double product_flops = 0;      // FLOP/s of a large matrix product in the run's precision
  double convolution_flops = 0;  // FLOP/s of the best of some 3x3 convolutions
  double memory_bytes = 0;       // B/s of dst = a + b over tensors far larger than caches
  double copy_bytes = 0;         // B/s from pinned host memory to the device; 0 where they are one
  // Least seconds for a cost: each operation is bound by arithmetic or by memory.
  double seconds(const Cost& cost) const;
  double best_flops() const { return product_flops > convolution_flops ? product_flops : convolution_flops; }
  std::string str() const;
};

// About a second. On several ranks: all at the same time, as they train.
Peaks measure_peaks(ExecutionContext&, DType);

}  // namespace millrace
