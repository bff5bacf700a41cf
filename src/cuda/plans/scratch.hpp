// Device memory and events for timing candidates. Each ends with its scope.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/errors/check.hpp"

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

}  // namespace millrace::cuda
