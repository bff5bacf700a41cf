// Peaks: the peak rates of this device for roofline models. They are measured with the same operations that training
// uses, not taken from data sheets.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "millrace/compute/execution_context.hpp"

namespace millrace {

// The rate of dst = a + b over tensors of `bytes` together. Small tensors stay in a cache from one call to the next.
struct MemoryRate {
  double bytes = 0, bytes_per_second = 0;
};

struct Peaks {
  double product_flops = 0;                   // FLOP/s of a large matrix product in the run's precision
  double convolution_flops = 0;               // FLOP/s of the fastest of several 3x3 convolutions
  double memory_bytes = 0;                    // B/s of dst = a + b over tensors far larger than the caches
  std::vector<MemoryRate> memory_rates = {};  // of growing size; the rates fall, the last one is memory_bytes
  double copy_bytes = 0;                      // B/s from pinned host memory to the device; 0 if they share memory
  // The rate for a pass over so many bytes: that of the next smaller size that was measured.
  double memory_rate(double bytes) const;
  // Lower bound of the time for a cost: the larger of its arithmetic time and its memory time.
  double seconds(const Cost& cost) const;
  // Raises the peaks to what an operation has reached: a probe that was slower, by another clock rate or because the
  // tensors of the operation were in a cache, has not found the bound.
  void include(const Cost& cost, double seconds);
  void scale(double factor);  // multiplies the rates of arithmetic and memory
  double best_flops() const { return product_flops > convolution_flops ? product_flops : convolution_flops; }
  std::string str() const;
};

// The least of a value over all ranks; collective.
using LeastOfRanks = std::function<double(double)>;

// The same in about 0.3 seconds, with fewer and smaller problems: as large as keeps the device busy. Collective. All
// rates are 0 on all ranks if one of them has too little memory; for the rates of memory it throws on that rank alone.
// convolutions: measure their rate too.
Peaks measure_peaks_briefly(ExecutionContext&, DType, bool convolutions, const LeastOfRanks&, double seconds = 0.3);

// Takes about two seconds. Call it on all ranks at the same time, because they also train at the same time.
Peaks measure_peaks(ExecutionContext&, DType);

}  // namespace millrace
