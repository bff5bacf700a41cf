// Not every CUDA toolkit contains the header of NVML, so this file declares the few functions and constants that it
// uses, with the names of NVML's reference manual.
#include "cuda/runtime/nvml.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

using Status = int;  // 0: success
using Gpu = struct nvmlDevice_st*;
constexpr int sm_clock = 1, gpu_temperature = 0;
constexpr unsigned max_nvlinks = 18, nvlink_up = 1;
constexpr unsigned nvlink_speed = 90;  // the field with the MB/s of each active link, in one direction

struct FieldValue {
  unsigned field = 0, scope = 0;
  long long timestamp = 0, latency = 0;
  int type = 0;  // 0: a double, 1: an unsigned, 2 and 3: unsigned integers of 64 bits
  Status status = -1;
  unsigned long long value = 0;
  // Only the bytes of the type have a value.
  double number() const { return type == 1 ? double(unsigned(value)) : double(value); }
};

constexpr std::pair<unsigned long long, const char*> reasons[] = {
    {0x004, "power cap"},   {0x008, "hardware slowdown"}, {0x020, "heat"},       {0x040, "heat (hardware)"},
    {0x080, "power brake"}, {0x010, "sync boost"},        {0x002, "set clocks"}, {0x100, "display clocks"}};

class NvmlLibrary : public Nvml {
 public:
  NvmlLibrary(void* handle) : handle_(handle) {}
  ~NvmlLibrary() override {
    if (started_) call<Status()>("nvmlShutdown");
    dlclose(handle_);
  }

  std::string start(const std::string& bus_id) {
    Status status = call<Status()>("nvmlInit_v2");
    if (status == 0) {
      started_ = true;
      status = call<Status(const char*, Gpu*)>("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &gpu_);
    }
    if (status != 0) return fmt::format("NVML reports error {}", status);
    count_nvlinks();
    return "";
  }

  void read(DeviceHealth& out) override {
    unsigned value = 0;
    const auto ok = [](Status s) { return s == 0; };
    if (ok(call<Status(Gpu, int, unsigned*)>("nvmlDeviceGetClockInfo", gpu_, sm_clock, &value))) out.clock_mhz = value;
    if (ok(call<Status(Gpu, int, unsigned*)>("nvmlDeviceGetMaxClockInfo", gpu_, sm_clock, &value)))
      out.top_clock_mhz = value;
    if (ok(call<Status(Gpu, unsigned*)>("nvmlDeviceGetPowerUsage", gpu_, &value))) out.watts = value * 1e-3;
    if (ok(call<Status(Gpu, unsigned*)>("nvmlDeviceGetEnforcedPowerLimit", gpu_, &value)))
      out.limit_watts = value * 1e-3;
    if (ok(call<Status(Gpu, int, unsigned*)>("nvmlDeviceGetTemperature", gpu_, gpu_temperature, &value)))
      out.celsius = value;
    const auto number = [&](const char* name, int& into) {
      if (ok(call<Status(Gpu, unsigned*)>(name, gpu_, &value))) into = int(value);
    };
    number("nvmlDeviceGetCurrPcieLinkGeneration", out.pcie_generation);
    number("nvmlDeviceGetCurrPcieLinkWidth", out.pcie_lanes);
    number("nvmlDeviceGetMaxPcieLinkGeneration", out.top_pcie_generation);
    number("nvmlDeviceGetMaxPcieLinkWidth", out.top_pcie_lanes);
    out.nvlinks = nvlinks_;
    out.nvlink_rate = nvlink_rate_;
    unsigned long long wide = 0;
    if (ok(call<Status(Gpu, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption", gpu_, &wide)))
      out.joules = double(wide) * 1e-3;
    // Recent drivers have the first name, older ones the second.
    Status status = call<Status(Gpu, unsigned long long*)>("nvmlDeviceGetCurrentClocksEventReasons", gpu_, &wide);
    if (!ok(status))
      status = call<Status(Gpu, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons", gpu_, &wide);
    if (ok(status))
      for (const auto& [bit, name] : reasons)
        if (wide & bit) out.throttle_reasons.push_back(name);
  }

 private:
  void count_nvlinks() {
    unsigned state = 0;
    for (unsigned link = 0; link < max_nvlinks; ++link) {
      if (call<Status(Gpu, unsigned, unsigned*)>("nvmlDeviceGetNvLinkState", gpu_, link, &state) != 0) continue;
      nvlinks_ = std::max(nvlinks_, 0) + (state == nvlink_up);
    }
    FieldValue speed{.field = nvlink_speed};
    if (nvlinks_ < 1 || call<Status(Gpu, int, FieldValue*)>("nvmlDeviceGetFieldValues", gpu_, 1, &speed) != 0) return;
    if (speed.status == 0 && speed.type != 0) nvlink_rate_ = nvlinks_ * speed.number() * 1e6;
  }

  template <class Signature, class... Args>
  Status call(const char* name, Args... args) {
    auto* function = reinterpret_cast<Signature*>(dlsym(handle_, name));
    return function ? function(args...) : -1;
  }

  void* handle_;
  Gpu gpu_ = nullptr;
  int nvlinks_ = -1;  // read once: links come up when the driver starts
  double nvlink_rate_ = -1;
  bool started_ = false;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::open(const std::string& bus_id, std::string* why_not, const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  std::string problem;
  if (handle) {
    auto nvml = std::make_unique<NvmlLibrary>(handle);
    problem = nvml->start(bus_id);
    if (problem.empty()) return nvml;
  } else {
    problem = fmt::format("{} was not found", library);
  }
  if (why_not) *why_not = problem;
  return nullptr;
}

}  // namespace millrace::cuda
