// Peaks: the peak rates of this device for roofline models. They are measured with the same operations that training
// uses, not taken from data sheets.
#pragma once
#include <string>

#include "millrace/compute/execution_context.hpp"

namespace millrace {

struct Peaks {
  double product_flops = 0;      // FLOP/s of a large matrix product in the run's precision
  double convolution_flops = 0;  // FLOP/s of the fastest of several 3x3 convolutions
  double memory_bytes = 0;       // B/s of dst = a + b over tensors far larger than the caches
  double copy_bytes = 0;         // B/s from pinned host memory to the device; 0 if they share memory
  // Lower bound of the time for a cost: the larger of its arithmetic time and its memory time.
  double seconds(const Cost& cost) const;
  double best_flops() const { return product_flops > convolution_flops ? product_flops : convolution_flops; }
  std::string str() const;
};

// Takes about a second. Call it on all ranks at the same time, because they also train at the same time.
Peaks measure_peaks(ExecutionContext&, DType);

}  // namespace millrace
