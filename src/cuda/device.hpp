// The part of the CUDA device that this room's other files use.
#pragma once
#include "block.hpp"
#include "millrace/device/device.hpp"

namespace millrace::cuda {

class CudaDevice : public Device {
 public:
  Stream stream(Lane) const;
  int ordinal() const;
  bool capturing() const;  // a step is being recorded
};

}  // namespace millrace::cuda
