#include "cuda/runtime/stream_clock.hpp"

#include <chrono>
#include <utility>

#include "cuda/errors/check.hpp"

namespace millrace::cuda {
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

StreamClock::StreamClock() {
  MR_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  MR_CUDA(cudaEventCreate(&reference_));
  MR_CUDA(cudaEventCreate(&candidate_));
  for (int i = 0; i < 2; ++i) {  // the first event is slow, so the second one counts
    const double before = now();
    MR_CUDA(cudaEventRecord(reference_, stream_));
    MR_CUDA(cudaEventSynchronize(reference_));
    seconds_ = (before + now()) / 2;
  }
}

StreamClock::~StreamClock() {
  cudaEventDestroy(reference_);
  cudaEventDestroy(candidate_);
  cudaStreamDestroy(stream_);
}

void StreamClock::renew() {
  const double before = now();
  MR_CUDA(cudaEventRecord(candidate_, stream_));
  for (double after = before; after - before < 200e-6;) {
    const cudaError_t status = cudaEventQuery(candidate_);
    after = now();
    if (status == cudaSuccess) {
      std::swap(reference_, candidate_);
      seconds_ = (before + after) / 2;
      return;
    }
    (void)cudaGetLastError();  // not ready
  }
}

double StreamClock::seconds_of(cudaEvent_t event) const {
  float milliseconds = 0;  // negative where the event came before the reference
  MR_CUDA(cudaEventElapsedTime(&milliseconds, reference_, event));
  return seconds_ + double(milliseconds) * 1e-3;
}

}  // namespace millrace::cuda
