#include "millrace/roofline/gpu.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace::roofline {
namespace {

// Dense rates from NVIDIA's data sheets of the A100 (2021), H100 (2023), H200 (2024) and HGX B200 (2024).
// NVLink: half of the stated sum of both directions. Multiprocessors and their memory: CUDA C++ programming guide.
const std::vector<GpuModel>& table() {
  static const std::vector<GpuModel> gpus = {
      {.name = "a100",
       .memory_bandwidth = 2.039e12,
       .fp16 = 312e12,
       .bf16 = 312e12,
       .tf32 = 156e12,
       .fp32 = 19.5e12,
       .nvlink = 300e9,
       .multiprocessors = 108,
       .shared_memory = 164 << 10},
      {.name = "b200",
       .memory_bandwidth = 8e12,
       .fp16 = 2250e12,
       .bf16 = 2250e12,
       .tf32 = 1125e12,
       .fp32 = 75e12,
       .nvlink = 900e9,
       .multiprocessors = 148,
       .shared_memory = 228 << 10},
      {.name = "h100",
       .memory_bandwidth = 3.35e12,
       .fp16 = 989e12,
       .bf16 = 989e12,
       .tf32 = 494e12,
       .fp32 = 67e12,
       .nvlink = 450e9,
       .multiprocessors = 132,
       .shared_memory = 228 << 10},
      {.name = "h200",
       .memory_bandwidth = 4.8e12,
       .fp16 = 989e12,
       .bf16 = 989e12,
       .tf32 = 494e12,
       .fp32 = 67e12,
       .nvlink = 450e9,
       .multiprocessors = 132,
       .shared_memory = 228 << 10},
  };
  return gpus;
}

double number(const std::string& text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    fail(Exit::config, "'{}' is not a number", text);
  return value;
}

double share(const std::string& text) {
  const double value = number(text);
  if (!(value > 0 && value <= 1)) fail(Exit::config, "'{}' is out of range (must be above 0 and at most 1)", text);
  return value;
}

struct Field {
  const char* key;
  double GpuModel::*value;
  double (*parse)(const std::string&);
};
double rate(const std::string& text) { return parse_rate(text); }
double seconds(const std::string& text) { return parse_seconds(text); }
double bytes(const std::string& text) { return double(parse_bytes(text)); }
constexpr Field fields[] = {{"memory_bandwidth", &GpuModel::memory_bandwidth, rate},
                            {"fp16", &GpuModel::fp16, number},
                            {"bf16", &GpuModel::bf16, number},
                            {"tf32", &GpuModel::tf32, number},
                            {"fp32", &GpuModel::fp32, number},
                            {"nvlink", &GpuModel::nvlink, rate},
                            {"launch_gap", &GpuModel::launch_gap, seconds},
                            {"memory_efficiency", &GpuModel::memory_efficiency, share},
                            {"tensor_efficiency", &GpuModel::tensor_efficiency, share},
                            {"link_efficiency", &GpuModel::link_efficiency, share},
                            {"multiprocessors", &GpuModel::multiprocessors, number},
                            {"shared_memory", &GpuModel::shared_memory, bytes}};

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == text.npos ? "" : text.substr(first, last - first + 1);
}

void set(GpuModel& gpu, const std::string& key, const std::string& value) {
  if (key == "name") {
    gpu.name = value;
    return;
  }
  const auto* field = std::find_if(std::begin(fields), std::end(fields), [&](const Field& f) { return key == f.key; });
  if (field == std::end(fields)) {
    std::string keys = "name";
    for (const Field& f : fields) keys += fmt::format(", {}", f.key);
    fail(Exit::config, "unknown key '{}'. use one of {}", key, keys);
  }
  const double parsed = field->parse(value);
  if (!(parsed > 0) && field->value != &GpuModel::launch_gap)
    fail(Exit::config, "{} = {} is out of range (must be above 0)", key, value);
  gpu.*field->value = parsed;
}

}  // namespace

double GpuModel::product_rate(DType factors, bool use_tf32) const {
  if (factors == DType::f16) return fp16;
  if (factors == DType::bf16) return bf16;
  return use_tf32 ? tf32 : fp32;
}

const GpuModel* find_gpu(std::string_view name) {
  for (const GpuModel& gpu : table())
    if (gpu.name == name) return &gpu;
  return nullptr;
}

std::string gpu_names() {
  std::string names;
  for (const GpuModel& gpu : table()) names += (names.empty() ? "" : ", ") + gpu.name;
  return names;
}

GpuModel parse_gpu(const std::string& path, const std::string& text) {
  GpuModel gpu;
  gpu.name = path;
  std::set<std::string> given;
  std::istringstream in(text);
  int number_of_line = 0;
  for (std::string line; std::getline(in, line);) {
    ++number_of_line;
    const std::string content = trimmed(line.substr(0, line.find('#')));
    if (content.empty()) continue;
    try {
      const auto equals = content.find('=');
      if (equals == content.npos) fail(Exit::config, "'{}' is not a valid line. write key = value", content);
      const std::string key = trimmed(content.substr(0, equals));
      if (!given.insert(key).second) fail(Exit::config, "{} is given twice. remove one of them", key);
      set(gpu, key, trimmed(content.substr(equals + 1)));
    } catch (const Error& error) {
      fail(Exit::config, "{}:{}: {}", path, number_of_line, error.what());
    }
  }
  for (const char* key : {"memory_bandwidth", "fp16"})
    if (!given.count(key)) fail(Exit::config, "{}: {} is missing", path, key);
  if (gpu.bf16 == 0) gpu.bf16 = gpu.fp16;
  if (gpu.tf32 == 0) gpu.tf32 = gpu.fp16 / 2;
  if (gpu.fp32 == 0) gpu.fp32 = gpu.tf32 / 8;
  return gpu;
}

}  // namespace millrace::roofline
