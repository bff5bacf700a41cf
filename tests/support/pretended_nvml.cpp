// The driver's management library as src/cuda/nvml.cpp needs it, of one GPU. An old one: it has the throttle reasons
// by their first name alone, and no energy.
#include <cstring>

extern "C" {
struct nvmlDevice_st {};
static nvmlDevice_st gpu;
static int users = 0;

int nvmlInit_v2() { return ++users, 0; }
int nvmlShutdown() { return --users, 0; }
int nvml_users() { return users; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_st** out) {
  if (std::strcmp(id, "0000:1b:00.0") != 0) return 6;  // not found
  *out = &gpu;
  return 0;
}
int nvmlDeviceGetClockInfo(nvmlDevice_st* d, int type, unsigned* out) {
  if (d != &gpu || type != 1) return 2;
  *out = 1410;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(nvmlDevice_st* d, int type, unsigned* out) {
  if (d != &gpu || type != 1) return 2;
  *out = 1980;
  return 0;
}
int nvmlDeviceGetPowerUsage(nvmlDevice_st*, unsigned* milliwatts) { return *milliwatts = 612500, 0; }
int nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_st*, unsigned* milliwatts) { return *milliwatts = 700000, 0; }
int nvmlDeviceGetTemperature(nvmlDevice_st*, int sensor, unsigned* out) { return *out = 66, sensor; }
int nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_st*, unsigned long long*) { return 3; }  // not supported
int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_st*, unsigned long long* out) { return *out = 0x4 | 0x40, 0; }
}
