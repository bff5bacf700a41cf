// When events happened on a GPU, in seconds of std::chrono::steady_clock, without holding up any lane: a reference
// event goes through a stream of its own, which is idle.
#pragma once
#include <cuda_runtime.h>

namespace millrace::cuda {

class StreamClock {
 public:
  StreamClock();
  ~StreamClock();
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  // A new reference. Needed now and then: event times are floats, in milliseconds from the reference. Usually takes
  // 10 us; keeps the old reference when it would take over 200 us, since streams may share a queue of the hardware.
  void renew();
  double renewed() const { return seconds_; }
  double seconds_of(cudaEvent_t) const;  // of an event that has happened, made with timing

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t reference_ = nullptr, candidate_ = nullptr;
  double seconds_ = 0;
};

}  // namespace millrace::cuda
