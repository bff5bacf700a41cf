#include "millrace/device/device.hpp"

#include "millrace/device/activity.hpp"

namespace millrace {

std::unique_ptr<ActivityWatch> Device::watch_activity(std::string* why_not) {
  if (why_not) *why_not = name() + " does not tell what it runs";
  return nullptr;
}

bool Device::read_health(Health&) { return false; }

}  // namespace millrace
