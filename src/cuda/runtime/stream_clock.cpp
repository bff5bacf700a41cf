#include "cuda/runtime/stream_clock.hpp"

#include <utility>

#include "cuda/errors/check.hpp"
#include "millrace/base/clock.hpp"

namespace millrace::cuda {

StreamClock::StreamClock() {
  MR_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  MR_CUDA(cudaEventCreate(&reference_));
  MR_CUDA(cudaEventCreate(&candidate_));
  for (int i = 0; i < 2; ++i) {  // the first event is slow, so the second one counts
    const double before = steady_seconds();
    MR_CUDA(cudaEventRecord(reference_, stream_));
    MR_CUDA(cudaEventSynchronize(reference_));
    seconds_ = (before + steady_seconds()) / 2;
  }
}

StreamClock::~StreamClock() {
  cudaEventDestroy(reference_);
  cudaEventDestroy(candidate_);
  cudaStreamDestroy(stream_);
}

void StreamClock::renew() {
  const double before = steady_seconds();
  MR_CUDA(cudaEventRecord(candidate_, stream_));
  for (double after = before; after - before < 200e-6;) {
    const cudaError_t status = cudaEventQuery(candidate_);
    after = steady_seconds();
    if (status == cudaSuccess) {
      std::swap(reference_, candidate_);
      seconds_ = (before + after) / 2;
      return;
    }
    (void)cudaGetLastError();
    if (status != cudaErrorNotReady) check(status, "the clock of the stream");
  }
}

double StreamClock::seconds_of(cudaEvent_t event) const {
  float milliseconds = 0;  // negative where the event came before the reference
  MR_CUDA(cudaEventElapsedTime(&milliseconds, reference_, event));
  return seconds_ + double(milliseconds) * 1e-3;
}

}  // namespace millrace::cuda
