// A fake NVML with one GPU, for src/cuda/runtime/nvml.cpp. It behaves like an old version: the function for throttle
// reasons has its former name, and energy is not reported.
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
int nvmlDeviceGetTemperature(nvmlDevice_st*, int sensor, unsigned* out) {
  *out = 66;
  return sensor;
}
int nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_st*, unsigned long long*) { return 3; }  // not supported
// The GPU uses half of the lanes of its slot, and has four NVLinks, three of which are up.
int nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_st*, unsigned* out) { return *out = 5, 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_st*, unsigned* out) { return *out = 5, 0; }
int nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_st*, unsigned* out) { return *out = 8, 0; }
int nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_st*, unsigned* out) { return *out = 16, 0; }
int nvmlDeviceGetNvLinkState(nvmlDevice_st*, unsigned link, unsigned* out) {
  if (link >= 4) return 2;
  return *out = link != 2, 0;
}
// nvmlFieldValue_t as in the reference manual.
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
int nvmlDeviceGetFieldValues(nvmlDevice_st*, int count, nvmlFieldValue_st* values) {
  if (count != 1 || values->fieldId != 90) return 2;
  values->valueType = 1;
  values->nvmlReturn = 0;
  values->value.uiVal = 26562;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_st*, unsigned long long* out) { return *out = 0x4 | 0x40, 0; }
}
