// Clock, power and temperature of a GPU from NVML, the management library of the driver. It is loaded with dlopen().
#pragma once
#include <memory>
#include <string>

#include "millrace/device/activity.hpp"

namespace millrace::cuda {

class Nvml {
 public:
  // Null, with the reason in why_not (may be null), if the library or the GPU is not found.
  static std::unique_ptr<Nvml> open(const std::string& bus_id, std::string* why_not,
                                    const char* library = "libnvidia-ml.so.1");
  virtual ~Nvml() = default;
  virtual void read(DeviceHealth&) = 0;  // any thread; values that the GPU does not report stay as they are
};

}  // namespace millrace::cuda
