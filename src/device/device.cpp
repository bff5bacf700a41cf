#include "millrace/device/device.hpp"

#include "millrace/device/activity.hpp"

namespace millrace {

std::unique_ptr<ActivityTracer> Device::make_activity_tracer(std::string* why_not) {
  if (why_not) *why_not = name() + " cannot trace the work that it runs";
  return nullptr;
}

std::unique_ptr<ActivityTracer> Device::make_label_tracer() { return nullptr; }

bool Device::read_health(DeviceHealth&) { return false; }

}  // namespace millrace
