// Converts the times of events on a GPU to seconds of std::chrono::steady_clock, without blocking any stream of the
// step. It records a reference event in a separate idle stream, and notes the host's time of that event.
#pragma once
#include <cuda_runtime.h>

namespace millrace::cuda {

class StreamClock {
 public:
  StreamClock();
  ~StreamClock();
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  // Takes a new reference. Needed from time to time, since CUDA gives the time between two events as a float of
  // milliseconds. Usually takes 10 us. Keeps the old reference if it would take more than 200 us, which can happen
  // because streams may share a hardware queue.
  void renew();
  double renewed() const { return seconds_; }  // time of the reference
  double seconds_of(cudaEvent_t) const;        // the event was created with timing, and has been reached

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t reference_ = nullptr, candidate_ = nullptr;
  double seconds_ = 0;
};

}  // namespace millrace::cuda
