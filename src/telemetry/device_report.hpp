// The device part of an account, as JSON and as lines for people. Internal to telemetry/.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "millrace/telemetry/account.hpp"

namespace millrace {

nlohmann::json to_json(const DeviceTime&);
nlohmann::json to_json(const DeviceHealthStats&);
DeviceTime device_time_from(const nlohmann::json&);
DeviceHealthStats health_from(const nlohmann::json&);

// Lines for all ranks. The kernels are those of the first traced rank. Empty if no device reported anything.
std::string device_lines(const std::vector<RankAccount>&);

}  // namespace millrace
