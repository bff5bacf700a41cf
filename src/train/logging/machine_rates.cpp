#include "train/logging/machine_rates.hpp"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/roofline/gpu.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* rates_format = "millrace-rates-1";
constexpr int max_measurements = 4;
constexpr std::uint64_t max_rates_bytes = 1 << 16;

// The data sheet of the GPU whose name contains that of a known one.
std::optional<MachineRates> data_sheet(const Session& s) {
  if (s.compute.device->shares_host_memory()) return std::nullopt;
  std::string name = s.compute.device->name();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  // Slower ones of the same name, and parts of one, are measured.
  for (const char* other : {"mig", "pcie", "nvl", "gh200", "40gb"})
    if (name.find(other) != std::string::npos) return std::nullopt;
  for (const char* known : {"a100", "b200", "h100", "h200"}) {
    const roofline::GpuModel* gpu = name.find(known) == std::string::npos ? nullptr : roofline::find_gpu(known);
    if (!gpu) continue;
    MachineRates out;
    out.peaks.product_flops = gpu->product_rate(s.spec.compute, s.config.cuda.tf32);
    out.peaks.memory_bytes = gpu->memory_bandwidth;
    out.source = std::string("data sheet of ") + known;
    return out;
  }
  return std::nullopt;
}

// All rates, in an order that is the same on all ranks.
std::vector<double*> rates_of(Peaks& peaks) {
  std::vector<double*> out{&peaks.product_flops, &peaks.convolution_flops};
  for (MemoryRate& rate : peaks.memory_rates) out.push_back(&rate.bytes_per_second);
  return out;
}

// The mean over the ranks; zeros if one of them cannot measure.
Peaks measure_together(Session& s) {
  const std::string& network = s.spec.model.name;
  const bool has_convolutions = network != "mlp" && network != "gpt2" && network != "llama";
  Peaks peaks;
  s.world.barrier();
  try {
    peaks = measure_peaks_briefly(s.compute, s.spec.compute, has_convolutions, [&](double value) {
      s.world.all_reduce({&value, 1}, World::Reduce::min);
      return value;
    });
  } catch (const std::exception& e) {
    log::warn(
        fmt::format("cannot measure the rates of the machine ({}): progress lines have no speed of light", e.what()));
    peaks = {};
  }
#ifdef __GLIBC__
  ::malloc_trim(0);  // gives the memory of the measurements back, which the plan of the run does not have
#endif
  double count = double(peaks.memory_rates.size());
  s.world.all_reduce({&count, 1}, World::Reduce::min);
  if (count == 0) return {};
  std::vector<double> sums;
  for (const double* rate : rates_of(peaks)) sums.push_back(*rate);
  s.world.all_reduce(sums, World::Reduce::sum);
  std::size_t i = 0;
  for (double* rate : rates_of(peaks)) *rate = sums[i++] / s.world.size();
  peaks.memory_bytes = peaks.memory_rates.back().bytes_per_second;
  return peaks;
}

}  // namespace

void MachineRates::add(const Peaks& other) {
  ++measurements;
  if (peaks.memory_rates.size() != other.memory_rates.size()) {
    peaks = other;
    return;
  }
  Peaks more = other;
  const std::vector<double*> mine = rates_of(peaks), theirs = rates_of(more);
  for (std::size_t i = 0; i < mine.size(); ++i) *mine[i] = std::max(*mine[i], *theirs[i]);
  peaks.memory_bytes = std::max(peaks.memory_bytes, other.memory_bytes);
}

RatesFile::RatesFile(std::string key, const fs::path& folder) : key_(std::move(key)) {
  if (!folder.empty()) path_ = folder / fmt::format("rates-{:08x}.json", crc32(key_.data(), key_.size()));
}

std::optional<MachineRates> RatesFile::load() const {
  std::error_code none;
  if (path_.empty() || !fs::is_regular_file(path_, none)) return std::nullopt;
  try {
    const json j = json::parse(read_file(path_, max_rates_bytes));
    if (j.at("format") != rates_format || j.at("key") != key_) return std::nullopt;
    MachineRates out;
    out.measurements = j.at("measurements");
    out.source = "measured";
    out.peaks.product_flops = j.at("product_flops");
    out.peaks.convolution_flops = j.at("convolution_flops");
    for (const json& rate : j.at("memory_rates")) out.peaks.memory_rates.push_back({rate.at(0), rate.at(1)});
    if (out.peaks.memory_rates.empty()) return std::nullopt;
    out.peaks.memory_bytes = out.peaks.memory_rates.back().bytes_per_second;
    return out.known() ? std::optional(out) : std::nullopt;
  } catch (const std::exception&) {  // damaged, or it cannot be read
    return std::nullopt;
  }
}

void RatesFile::save(const MachineRates& rates) const {
  std::error_code none;
  if (path_.empty() || (fs::exists(path_, none) && !load())) return;
  json out{{"format", rates_format},
           {"key", key_},
           {"measurements", rates.measurements},
           {"product_flops", rates.peaks.product_flops},
           {"convolution_flops", rates.peaks.convolution_flops},
           {"memory_rates", json::array()}};
  for (const MemoryRate& rate : rates.peaks.memory_rates)
    out["memory_rates"].push_back({rate.bytes, rate.bytes_per_second});
  try {
    fs::create_directories(path_.parent_path());
    write_shared_file(path_, out.dump(1) + "\n");
  } catch (const std::exception&) {  // the next start measures again
  }
}

fs::path rates_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && *cache == '/') return fs::path(cache) / "millrace";
  return home && *home ? fs::path(home) / ".cache" / "millrace" : fs::path();
}

RatesFile rates_file(const Session& s) {
  return {fmt::format("{}, {}, {} ranks on {} hosts, {} threads, {}", s.world.host(), s.compute.device->describe(),
                      s.world.size(), s.world.node_count(), s.placement.compute_threads, name_of(s.spec.compute)),
          rates_folder()};
}

MachineRates machine_rates(Session& s) {
  const auto sheet = data_sheet(s);
  double with_sheet = sheet.has_value();
  s.world.all_reduce({&with_sheet, 1}, World::Reduce::min);
  if (with_sheet > 0) return *sheet;
  const RatesFile file = rates_file(s);
  MachineRates rates;
  if (s.world.rank() == 0) rates = file.load().value_or(MachineRates{});
  std::int64_t measures = rates.measurements < max_measurements;
  s.world.broadcast(&measures, sizeof measures, 0);
  if (measures) {
    const Peaks measured = measure_together(s);
    rates.source = "measured";
    if (measured.memory_bytes > 0) rates.add(measured);
    if (s.world.rank() == 0 && rates.known()) file.save(rates);
  }
  // Only rank 0 has read the file.
  std::array<double, 3> first{rates.peaks.product_flops, rates.peaks.convolution_flops,
                              double(rates.peaks.memory_rates.size())};
  s.world.broadcast(first.data(), sizeof first, 0);
  rates.peaks.product_flops = first[0];
  rates.peaks.convolution_flops = first[1];
  rates.peaks.memory_rates.resize(std::size_t(first[2]));
  if (!rates.peaks.memory_rates.empty()) {
    s.world.broadcast(rates.peaks.memory_rates.data(), rates.peaks.memory_rates.size() * sizeof(MemoryRate), 0);
    rates.peaks.memory_bytes = rates.peaks.memory_rates.back().bytes_per_second;
  }
  rates.source = "measured";
  return rates;
}

}  // namespace millrace
