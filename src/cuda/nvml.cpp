// The library's header is not part of every toolkit; what is used of it is declared here, with the names of its
// reference manual.
#include "nvml.hpp"

#include <dlfcn.h>

#include <utility>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

using Status = int;  // 0: success
using Gpu = struct nvmlDevice_st*;
constexpr int sm_clock = 1, gpu_temperature = 0;

constexpr std::pair<unsigned long long, const char*> reasons[] = {
    {0x004, "power cap"},   {0x008, "hardware slowdown"}, {0x020, "heat"},       {0x040, "heat (hardware)"},
    {0x080, "power brake"}, {0x010, "sync boost"},        {0x002, "set clocks"}, {0x100, "display clocks"}};

class Library : public Nvml {
 public:
  Library(void* handle) : handle_(handle) {}
  ~Library() override {
    if (started_) call<Status()>("nvmlShutdown");
    dlclose(handle_);
  }

  std::string start(const std::string& bus_id) {
    Status status = call<Status()>("nvmlInit_v2");
    if (status == 0) {
      started_ = true;
      status = call<Status(const char*, Gpu*)>("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &gpu_);
    }
    return status == 0 ? "" : cat("NVML answers with error ", status);
  }

  void read(Health& out) override {
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
    unsigned long long wide = 0;
    if (ok(call<Status(Gpu, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption", gpu_, &wide)))
      out.joules = double(wide) * 1e-3;
    // The newer name first.
    Status status = call<Status(Gpu, unsigned long long*)>("nvmlDeviceGetCurrentClocksEventReasons", gpu_, &wide);
    if (!ok(status))
      status = call<Status(Gpu, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons", gpu_, &wide);
    if (ok(status))
      for (const auto& [bit, name] : reasons)
        if (wide & bit) out.slowed.push_back(name);
  }

 private:
  template <class Signature, class... Args>
  Status call(const char* name, Args... args) {
    auto* function = reinterpret_cast<Signature*>(dlsym(handle_, name));
    return function ? function(args...) : -1;
  }

  void* handle_;
  Gpu gpu_ = nullptr;
  bool started_ = false;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::open(const std::string& bus_id, std::string* why_not, const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  std::string problem;
  if (handle) {
    auto nvml = std::make_unique<Library>(handle);
    problem = nvml->start(bus_id);
    if (problem.empty()) return nvml;
  } else {
    problem = cat(library, " is not there");
  }
  if (why_not) *why_not = problem;
  return nullptr;
}

}  // namespace millrace::cuda
