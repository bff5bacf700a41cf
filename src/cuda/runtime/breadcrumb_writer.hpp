// Writes the breadcrumbs of the FlightRecorder on the GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "cuda/block/block.hpp"
#include "cuda/errors/flight_recorder.hpp"

namespace millrace::cuda {

class BreadcrumbWriter {
 public:
  // on: false if there are no breadcrumbs; then nothing is allocated.
  BreadcrumbWriter(int ordinal, bool on);
  ~BreadcrumbWriter();
  BreadcrumbWriter(const BreadcrumbWriter&) = delete;
  FlightRecorder::Breadcrumb* breadcrumb() { return breadcrumb_.get(); }
  void write(StreamHandle compute, std::uint64_t place, FlightRecorder::Write);

 private:
  // Page-locked host memory that the GPU can write to.
  std::unique_ptr<FlightRecorder::Breadcrumb, void (*)(FlightRecorder::Breadcrumb*)> breadcrumb_;
  StreamHandle branch_ = nullptr;
  cudaEvent_t event_ = nullptr;  // where the branch begins or ends
};

}  // namespace millrace::cuda
