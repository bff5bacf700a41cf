#include "millrace/telemetry/device_health_stats.hpp"

#include <algorithm>

namespace millrace {

void DeviceHealthStats::add(const DeviceHealth& h) {
  const auto into_mean = [](double& mean, int& count, double value) {
    if (value < 0) return;
    mean = count == 0 ? value : mean + (value - mean) / (count + 1);
    ++count;
  };
  ++samples;
  into_mean(clock_mhz, clocks_, h.clock_mhz);
  into_mean(watts, powers_, h.watts);
  if (h.clock_mhz >= 0) least_clock_mhz = least_clock_mhz < 0 ? h.clock_mhz : std::min(least_clock_mhz, h.clock_mhz);
  top_clock_mhz = std::max(top_clock_mhz, h.top_clock_mhz);
  limit_watts = std::max(limit_watts, h.limit_watts);
  celsius = std::max(celsius, h.celsius);
  const auto raise = [](auto& max, auto value) { max = std::max(max, value); };
  raise(pcie_generation, h.pcie_generation);
  raise(pcie_lanes, h.pcie_lanes);
  raise(top_pcie_generation, h.top_pcie_generation);
  raise(top_pcie_lanes, h.top_pcie_lanes);
  raise(nvlinks, h.nvlinks);
  raise(nvlink_rate, h.nvlink_rate);
  if (h.joules >= 0) {
    if (first_joules_ < 0) first_joules_ = h.joules;
    joules = h.joules - first_joules_;
  }
  for (const std::string& reason : h.throttle_reasons) ++reason_count_[reason];
  for (const auto& [reason, count] : reason_count_) throttle_reasons[reason] = double(count) / samples;
}

}  // namespace millrace
