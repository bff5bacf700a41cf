#include "telemetry/device_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using nlohmann::json;

double percent(double part, double all) { return all > 0 ? 100 * part / all : 0; }

// Median, minimum and maximum over the traced ranks, in percent of the traced time.
std::string percent_text(const std::vector<RankAccount>& ranks, double DeviceTime::*part) {
  std::vector<double> shares;
  for (const RankAccount& r : ranks)
    if (r.device.seconds > 0) shares.push_back(percent(r.device.*part, r.device.seconds));
  std::sort(shares.begin(), shares.end());
  if (shares.size() == 1) return fmt::format("{:.2f} %", shares.front());
  return fmt::format("{:.2f} % ({:.2f} to {:.2f} over ranks)", shares[shares.size() / 2], shares.front(),
                     shares.back());
}

std::string kernel_lines(const DeviceTime& device) {
  std::string out =
      "  most expensive kernels of a rank: share of the time, launches, time per launch, share of the roofline (above: "
      "faster than the measured peaks, as from a cache)\n";
  for (const KernelTime& k : device.kernels) {
    const std::string roofline = k.has_bound()      ? fmt::format("{:6.0f} %", percent(k.least_seconds, k.seconds))
                                 : k.passes_bound() ? "   above"
                                                    : "       -";
    out += fmt::format("    {:6.2f} % {:8} x {:10.1f} us {}  {:.110}\n", percent(k.seconds, device.seconds), k.launches,
                       k.seconds / double(k.launches) * 1e6, roofline, k.name);
  }
  return out;
}

std::string health_lines(const std::vector<RankAccount>& ranks) {
  const RankAccount* slowest = nullptr;
  double joules = -1;
  for (const RankAccount& r : ranks) {
    if (r.health.joules >= 0) joules = std::max(joules, 0.0) + r.health.joules;
    if (r.health.clock_mhz >= 0 && (!slowest || r.health.clock_mhz < slowest->health.clock_mhz)) slowest = &r;
  }
  std::string out;
  if (slowest) {
    const DeviceHealthStats& h = slowest->health;
    out = fmt::format("  slowest device: {:.0f} MHz on average (min {:.0f}, supported {:.0f})", h.clock_mhz,
                      h.least_clock_mhz, h.top_clock_mhz);
    if (h.watts >= 0) out += fmt::format(", {:.0f} W of {:.0f}", h.watts, h.limit_watts);
    if (h.celsius >= 0) out += fmt::format(", up to {:.0f} C", h.celsius);
    out += "\n";
  }
  if (joules >= 0) out += fmt::format("  energy of all devices: {:.1f} kJ\n", joules * 1e-3);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const auto& [reason, part] : ranks[r].health.throttle_reasons)
      if (part >= 0.1)
        out += fmt::format("  the clock of rank {} on {} was throttled {:.0f} % of the time: {}\n", r, ranks[r].host,
                           100 * part, reason);
  return out;
}

}  // namespace

json to_json(const DeviceTime& d) {
  json kernels = json::array();
  for (const KernelTime& k : d.kernels)
    kernels.push_back({{"name", k.name},
                       {"launches", k.launches},
                       {"seconds", k.seconds},
                       {"least_seconds", k.least_seconds > 0 ? json(k.least_seconds) : json()},
                       {"share", d.seconds > 0 ? k.seconds / d.seconds : 0.0},
                       {"roofline", k.has_bound() ? json(k.least_seconds / k.seconds) : json()}});
  return {{"steps", d.steps},
          {"seconds", d.seconds},
          {"busy_seconds", d.busy},
          {"computing_seconds", d.computing},
          {"exposed_communication_seconds", d.exposed_sums},
          {"exposed_copy_seconds", d.exposed_copies},
          {"busy_percent", percent(d.busy, d.seconds)},
          {"kernels", kernels}};
}

DeviceTime device_time_from(const json& j) {
  DeviceTime d;
  d.steps = j.at("steps");
  d.seconds = j.at("seconds");
  d.busy = j.at("busy_seconds");
  d.computing = j.at("computing_seconds");
  d.exposed_sums = j.at("exposed_communication_seconds");
  d.exposed_copies = j.at("exposed_copy_seconds");
  for (const json& k : j.at("kernels"))
    d.kernels.push_back({k.at("name"), k.at("launches"), k.at("seconds"),
                         k.at("least_seconds").is_null() ? 0 : k.at("least_seconds").get<double>()});
  return d;
}

json to_json(const DeviceHealthStats& h) {
  const auto known = [](double v) { return v >= 0 ? json(v) : json(); };
  return {{"samples", h.samples},
          {"clock_mhz", known(h.clock_mhz)},
          {"least_clock_mhz", known(h.least_clock_mhz)},
          {"top_clock_mhz", known(h.top_clock_mhz)},
          {"watts", known(h.watts)},
          {"limit_watts", known(h.limit_watts)},
          {"celsius", known(h.celsius)},
          {"joules", known(h.joules)},
          {"pcie", {known(h.pcie_generation), known(h.pcie_lanes)}},
          {"top_pcie", {known(h.top_pcie_generation), known(h.top_pcie_lanes)}},
          {"nvlinks", known(h.nvlinks)},
          {"nvlink_rate", known(h.nvlink_rate)},
          {"slowed", h.throttle_reasons}};
}

DeviceHealthStats health_from(const json& j) {
  const auto value = [&](const char* key) { return j.at(key).is_null() ? -1 : j.at(key).get<double>(); };
  DeviceHealthStats h;
  h.samples = j.at("samples");
  h.clock_mhz = value("clock_mhz");
  h.least_clock_mhz = value("least_clock_mhz");
  h.top_clock_mhz = value("top_clock_mhz");
  const auto pair = [&](const char* key, int& generation, int& lanes) {
    const auto number = [](const json& one) { return one.is_null() ? -1 : one.get<int>(); };
    if (j.contains(key)) {
      generation = number(j.at(key).at(0));
      lanes = number(j.at(key).at(1));
    }
  };
  pair("pcie", h.pcie_generation, h.pcie_lanes);
  pair("top_pcie", h.top_pcie_generation, h.top_pcie_lanes);
  if (j.contains("nvlinks")) {
    h.nvlinks = int(value("nvlinks"));
    h.nvlink_rate = value("nvlink_rate");
  }
  h.watts = value("watts");
  h.limit_watts = value("limit_watts");
  h.celsius = value("celsius");
  h.joules = value("joules");
  for (const auto& [reason, part] : j.at("slowed").items()) h.throttle_reasons[reason] = part;
  return h;
}

std::string device_lines(const std::vector<RankAccount>& ranks) {
  std::string out;
  const auto traced = std::find_if(ranks.begin(), ranks.end(), [](const auto& r) { return r.device.seconds > 0; });
  if (traced != ranks.end()) {
    out = fmt::format("  device, in {} traced steps: busy {}, computing {}\n", traced->device.steps,
                      percent_text(ranks, &DeviceTime::busy), percent_text(ranks, &DeviceTime::computing));
    out += fmt::format("  exposed: communication {}, copies {}\n", percent_text(ranks, &DeviceTime::exposed_sums),
                       percent_text(ranks, &DeviceTime::exposed_copies));
    out += kernel_lines(traced->device);
  }
  return out + health_lines(ranks);
}

}  // namespace millrace
