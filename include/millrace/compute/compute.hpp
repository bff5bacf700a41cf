// Compute: the three classes that carry every difference between processors, made together, once, at the top. Nothing
// above asks which it got.
#pragma once
#include <memory>

#include "millrace/comm/collective.hpp"
#include "millrace/comm/placement.hpp"
#include "millrace/device/device.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace {

struct Compute {  // destroyed in reverse order
  std::unique_ptr<Device> device;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Collective> collective;
};

struct ComputeOptions {
  Placement placement;
  CollectiveOptions collective;
  bool deterministic = false;
};

Compute make_cpu_compute(World&, const ComputeOptions&);
Compute make_cuda_compute(World&, const ComputeOptions&);  // Error(config) saying what is missing and how to get it
bool cuda_usable(std::string* why_not);                    // never throws; does not touch devices beyond counting them

}  // namespace millrace
