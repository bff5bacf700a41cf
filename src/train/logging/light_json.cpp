#include "train/logging/light_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace millrace {

using nlohmann::json;

json light_record(const SpeedOfLight& light) {
  if (!light.known()) return {};
  const Peaks& peaks = light.rates().peaks;
  json out{{"rates", light.rates().source},
           {"flops", peaks.best_flops()},
           {"memory_bytes", peaks.memory_bytes},
           {"step_ms", light.least_seconds() * 1e3}};
  for (const MemoryRate& rate : peaks.memory_rates) out["memory_rates"].push_back({rate.bytes, rate.bytes_per_second});
  return out;
}

json light_json(const LightStats& light) {
  constexpr std::size_t max_operations = 64;
  if (light.share <= 0) return {};
  json operations = json::array();
  for (std::size_t i = 0; i < std::min(max_operations, light.operations.size()); ++i) {
    const LightStats::Operation& op = light.operations[i];
    operations.push_back({{"name", op.name},
                          {"kind", op.kind},
                          {"step_ms", op.seconds > 0 ? json(op.seconds * 1e3) : json()},
                          {"least_ms", op.least_seconds * 1e3}});
  }
  return {{"share", light.share},
          {"step_ms", light.least_seconds * 1e3},
          {"optimizer_ms", light.optimizer_seconds * 1e3},
          {"operations", operations}};
}

}  // namespace millrace
