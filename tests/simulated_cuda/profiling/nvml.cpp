// A simulated NVML, with the functions, types and codes of NVIDIA's NVML API reference. CUDA toolkits need not have its
// header. Power and energy follow the work that this process ran; NVML itself sees the work of all processes.
#include "simulated_cuda/profiling/nvml.hpp"

#include <chrono>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>

#include "simulated_cuda/profiling/tracing.hpp"

struct nvmlDevice_st {
  int number = 0;
};
using Device = nvmlDevice_st*;

namespace millrace::simulated {
namespace {

enum Status { success, uninitialized, invalid_argument, not_supported, not_found = 6, function_not_found = 13 };
constexpr int clock_sm = 1, temperature_gpu = 0;
constexpr unsigned most_nvlinks = 18, nvlink_speed_field = 90, nvlink_mb_per_second = 26562;

std::mutex mutex;  // guards what follows
int users = 0;
std::deque<nvmlDevice_st>& devices() {
  static auto* const all = [] {
    auto* made = new std::deque<nvmlDevice_st>;
    for (int i = 0; i < settings().gpus; ++i) made->push_back({i});
    return made;
  }();
  return *all;
}

// "It is the user's responsibility to call nvmlInit_v2() before calling any other methods":
// NVML_ERROR_UNINITIALIZED. NVML_ERROR_INVALID_ARGUMENT: the device or the pointer is invalid.
template <class Out, class Answer>
int answer(Device device, Out* out, const Answer& value) {
  const std::lock_guard hold(mutex);
  if (users == 0) return uninitialized;
  bool known = false;
  for (const auto& d : devices()) known = known || &d == device;
  if (!known || !out) return invalid_argument;
  return value();
}
template <class Out, class Value>
int give(Device device, Out* out, Value value) {
  return answer(device, out, [&] {
    *out = Out(value);
    return int(success);
  });
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Since the first question.
double millijoules() {
  static const double begin = seconds();
  const GpuHealth& gpu = gpu_health();
  return (seconds() - begin) * gpu.idle_milliwatts +
         double(busy_nanoseconds) * 1e-9 * (gpu.busy_milliwatts - gpu.idle_milliwatts);
}

// The mean power since the last question.
double milliwatts() {
  static double last_time = 0, last_energy = 0;
  const double energy = millijoules(), time = seconds();
  const double mean =
      last_time > 0 && time > last_time ? (energy - last_energy) / (time - last_time) : gpu_health().idle_milliwatts;
  last_time = time;
  last_energy = energy;
  return mean;
}

}  // namespace

GpuHealth& gpu_health() {
  static GpuHealth all;
  return all;
}
int nvml_users() {
  const std::lock_guard hold(mutex);
  return users;
}

}  // namespace millrace::simulated

using namespace millrace::simulated;

extern "C" {

// "A reference count of the number of initializations is maintained. Shutdown only occurs when the reference count
// reaches zero."
int nvmlInit_v2() {
  const std::lock_guard hold(mutex);
  ++users;
  return success;
}
int nvmlShutdown() {
  const std::lock_guard hold(mutex);
  if (users == 0) return uninitialized;
  --users;
  return success;
}

// pciBusId: "domain:bus:device.function" as in nvmlPciInfo_t::busId, in hexadecimal.
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, Device* out) {
  const std::lock_guard hold(mutex);
  if (users == 0) return uninitialized;
  unsigned domain = 0, bus = 0, slot = 0;
  if (!id || !out || std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) return invalid_argument;
  if (domain != unsigned(host_of_process()) || bus < 1 || bus > devices().size() || slot != 0)
    return not_found;  // cudaDeviceGetPCIBusId
  *out = &devices()[bus - 1];
  return success;
}

int nvmlDeviceGetClockInfo(Device d, int type, unsigned* out) {
  return type == clock_sm ? give(d, out, gpu_health().clock_mhz) : not_supported;
}
int nvmlDeviceGetMaxClockInfo(Device d, int type, unsigned* out) {
  return type == clock_sm ? give(d, out, gpu_health().top_clock_mhz) : not_supported;
}
int nvmlDeviceGetTemperature(Device d, int sensor, unsigned* out) {
  return sensor == temperature_gpu ? give(d, out, gpu_health().celsius) : invalid_argument;
}
int nvmlDeviceGetPowerUsage(Device d, unsigned* out) { return give(d, out, milliwatts()); }
int nvmlDeviceGetEnforcedPowerLimit(Device d, unsigned* out) { return give(d, out, gpu_health().limit_milliwatts); }
int nvmlDeviceGetTotalEnergyConsumption(Device d, unsigned long long* out) {
  return gpu_health().reports_energy ? give(d, out, millijoules()) : not_supported;
}
int nvmlDeviceGetCurrPcieLinkGeneration(Device d, unsigned* out) { return give(d, out, gpu_health().pcie_generation); }
int nvmlDeviceGetMaxPcieLinkGeneration(Device d, unsigned* out) { return give(d, out, gpu_health().pcie_generation); }
int nvmlDeviceGetCurrPcieLinkWidth(Device d, unsigned* out) { return give(d, out, gpu_health().pcie_lanes); }
int nvmlDeviceGetMaxPcieLinkWidth(Device d, unsigned* out) { return give(d, out, gpu_health().top_pcie_lanes); }

// link: "the NvLink to be queried", below NVML_NVLINK_MAX_LINKS and below the number of the GPU's links.
int nvmlDeviceGetNvLinkState(Device d, unsigned link, unsigned* out) {
  const GpuHealth& gpu = gpu_health();
  if (link >= most_nvlinks || link >= gpu.nvlinks) return invalid_argument;
  return give(d, out, link + gpu.nvlinks_down < gpu.nvlinks);
}

struct nvmlFieldValue_st {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUsec;
  int valueType, nvmlReturn;
  union {
    double dVal;
    unsigned uiVal;
    unsigned long long ullVal;
  } value;
};
// "The return value indicates whether any values were populated; each has its own nvmlReturn."
int nvmlDeviceGetFieldValues(Device d, int count, nvmlFieldValue_st* values) {
  return answer(d, values, [&] {
    for (int i = 0; i < count; ++i) {
      nvmlFieldValue_st& field = values[i];
      field.nvmlReturn = field.fieldId == nvlink_speed_field ? success : not_supported;
      field.valueType = 1;                      // NVML_VALUE_TYPE_UNSIGNED_INT
      field.value.ullVal = 0xffffffff00000000;  // only the member of the type has a value
      field.value.uiVal = nvlink_mb_per_second;
    }
    return int(success);
  });
}

int nvmlDeviceGetCurrentClocksEventReasons(Device d, unsigned long long* out) {
  return gpu_health().old_driver ? function_not_found : give(d, out, gpu_health().throttle_reasons);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long* out) {
  return give(d, out, gpu_health().throttle_reasons);
}
}
