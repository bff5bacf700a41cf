// Timing on the device: scratch memory and events, which end with their scope, and what is measured with them.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/block/block.hpp"
#include "cuda/errors/check.hpp"
#include "millrace/plans/plan_selector.hpp"

namespace millrace::cuda {

// Uninitialised device memory; data() is null if the device has too little free memory.
class ScratchMemory {
 public:
  explicit ScratchMemory(std::size_t bytes) {
    if (cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)) == cudaSuccess) return;
    data_ = nullptr;
    (void)cudaGetLastError();
  }
  ~ScratchMemory() { cudaFree(data_); }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// An event that records its time.
class TimingEvent {
 public:
  TimingEvent() { MR_CUDA(cudaEventCreate(&event_)); }
  ~TimingEvent() { cudaEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// The seconds of one call of each candidate, by time_candidates(). enqueue(candidate) enqueues one call on the stream
// and returns false if the candidate does not run. Calls are recorded in a CUDA graph, so that the time of the host,
// which is longer than that of a short kernel, does not count. A candidate that cannot be recorded could not run in a
// captured step either, and counts as one that fails.
std::vector<double> time_on_device(StreamHandle, std::size_t candidates,
                                   const std::function<bool(std::size_t candidate)>& enqueue);

// How many bytes a kernel that is bound by memory reads and writes in a second, on the current device. It is measured
// once by a copy of at least 64 MiB and kept like the time of a plan; all ranks get the value of rank 0. If kernels are
// not timed, or if memory is short, it is 85% of what the clock and the width of the memory bus allow. 0: that is not
// known either.
double copy_bytes_per_second(StreamHandle, PlanSelector&);
// The two parts of this value, for tests.
constexpr double copy_share_of_bus = 0.85;
double bus_bytes_per_second(int memory_clock_khz, int bus_width_bits);

}  // namespace millrace::cuda
