#include "cuda/runtime/events.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include "cuda/errors/check.hpp"
#include "cuda/runtime/device.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/units.hpp"

namespace millrace::cuda {
namespace {

class CudaEvent : public Event {
 public:
  CudaEvent(CudaDevice& device, double timeout) : device_(device), timeout_(timeout) {
    MR_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  void record(Stream stream) override {
    MR_CUDA(cudaEventRecordWithFlags(event_, device_.stream(stream),
                                     device_.capturing(stream) ? cudaEventRecordExternal : cudaEventRecordDefault));
  }
  void wait(Stream stream) override {
    MR_CUDA(cudaStreamWaitEvent(device_.stream(stream), event_,
                                device_.capturing(stream) ? cudaEventWaitExternal : cudaEventWaitDefault));
  }
  void synchronize() override {
    wait_until_done(timeout_, "an event of the step", [this] { return cudaEventQuery(event_); });
  }

 private:
  CudaDevice& device_;
  double timeout_;
  cudaEvent_t event_ = nullptr;
};

class CudaTimestamps : public Timestamps {
 public:
  CudaTimestamps(CudaDevice& device, int count, double timeout)
      : device_(device), timeout_(timeout), events_(std::size_t(count)) {
    for (auto& event : events_) MR_CUDA(cudaEventCreate(&event));
  }
  ~CudaTimestamps() override {
    for (auto& event : events_) cudaEventDestroy(event);
  }
  void record(Stream stream, int index) override {
    MR_CUDA(cudaEventRecordWithFlags(events_.at(std::size_t(index)), device_.stream(stream),
                                     device_.capturing(stream) ? cudaEventRecordExternal : cudaEventRecordDefault));
  }
  void read(std::span<double> out) override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      wait_until_done(timeout_, "a timestamp of the step", [&] { return cudaEventQuery(events_.at(i)); });
      float milliseconds = 0;
      MR_CUDA(cudaEventElapsedTime(&milliseconds, events_[0], events_[i]));
      out[i] = double(milliseconds) * 1e-3;
    }
  }

 private:
  CudaDevice& device_;
  double timeout_;
  std::vector<cudaEvent_t> events_;
};

}  // namespace

void wait_until_done(double timeout_seconds, const std::string& what, const std::function<cudaError_t()>& query) {
  const double began = steady_seconds();
  for (int attempt = 0;; ++attempt) {
    const cudaError_t status = query();
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check(status, what.c_str());
    (void)cudaGetLastError();  // clears cudaErrorNotReady; a later call would report it otherwise
    if (attempt < 64) continue;
    std::this_thread::sleep_for(std::chrono::microseconds(attempt < 1000 ? 20 : 200));
    if (steady_seconds() - began > timeout_seconds)
      fail(Exit::comm,
           "the GPU did not finish its work within {} ({}). a rank is late or lost, or comm.timeout is too short",
           format_seconds(timeout_seconds), what);
  }
}

std::unique_ptr<Event> make_cuda_event(CudaDevice& device, double timeout_seconds) {
  return std::make_unique<CudaEvent>(device, timeout_seconds);
}

std::unique_ptr<Timestamps> make_cuda_timestamps(CudaDevice& device, int count, double timeout_seconds) {
  return std::make_unique<CudaTimestamps>(device, count, timeout_seconds);
}

}  // namespace millrace::cuda
