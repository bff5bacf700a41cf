// The objects "speed_of_light" of run.json and summary.json; null: not known.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "train/logging/speed_of_light.hpp"

namespace millrace {

nlohmann::json light_record(const SpeedOfLight&);  // the rates, and the least time of a full step
nlohmann::json light_json(const LightStats&);      // the share, and the longest operations

}  // namespace millrace
