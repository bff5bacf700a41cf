#include "cuda/runtime/breadcrumb_writer.hpp"

#include <new>

#include "cuda/errors/check.hpp"
#include "cuda/runtime/record_breadcrumb.hpp"

namespace millrace::cuda {

BreadcrumbWriter::BreadcrumbWriter(int ordinal, bool on)
    : breadcrumb_(nullptr, [](FlightRecorder::Breadcrumb* words) { cudaFreeHost(words); }) {
  if (!on) return;
  MR_CUDA(cudaSetDevice(ordinal));
  void* memory = nullptr;
  MR_CUDA(cudaHostAlloc(&memory, sizeof(FlightRecorder::Breadcrumb), cudaHostAllocMapped | cudaHostAllocPortable));
  breadcrumb_.reset(new (memory) FlightRecorder::Breadcrumb);
  // The highest priority, so that a breadcrumb need not wait for the blocks of its operation.
  int lowest = 0, highest = 0;
  MR_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  MR_CUDA(cudaStreamCreateWithPriority(&branch_, cudaStreamNonBlocking, highest));
  MR_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

BreadcrumbWriter::~BreadcrumbWriter() {
  if (event_) cudaEventDestroy(event_);
  if (branch_) cudaStreamDestroy(branch_);
}

// Without the external flag, an event in a capture is a dependency between nodes, and no node.
void BreadcrumbWriter::write(StreamHandle compute, std::uint64_t place, FlightRecorder::Write what) {
  using Write = FlightRecorder::Write;
  switch (what) {
    case Write::begin:
      return record_breadcrumb({compute}, &breadcrumb_->place, place, &breadcrumb_->runs);
    case Write::in_stream:
      return record_breadcrumb({compute}, &breadcrumb_->place, place, nullptr);
    case Write::on_branch:
      MR_CUDA(cudaEventRecord(event_, compute));
      MR_CUDA(cudaStreamWaitEvent(branch_, event_, 0));
      return record_breadcrumb({branch_}, &breadcrumb_->place, place, nullptr);
    case Write::join:
      MR_CUDA(cudaEventRecord(event_, branch_));
      MR_CUDA(cudaStreamWaitEvent(compute, event_, 0));
  }
}

}  // namespace millrace::cuda
