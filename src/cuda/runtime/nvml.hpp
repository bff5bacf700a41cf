// Clock, power and heat of a GPU by the driver's management library, which is loaded where it is there.
#pragma once
#include <memory>
#include <string>

#include "millrace/device/activity.hpp"

namespace millrace::cuda {

class Nvml {
 public:
  // Null, with the reason, where the library or the GPU is not found.
  static std::unique_ptr<Nvml> open(const std::string& bus_id, std::string* why_not,
                                    const char* library = "libnvidia-ml.so.1");
  virtual ~Nvml() = default;
  virtual void read(DeviceHealth&) = 0;  // any thread; what the GPU does not tell stays unknown
};

}  // namespace millrace::cuda
