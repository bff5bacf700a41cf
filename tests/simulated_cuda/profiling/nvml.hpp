// Internal to the simulated NVML: what it answers for each GPU. Tests change it.
#pragma once

namespace millrace::simulated {

struct GpuHealth {
  unsigned clock_mhz = 1980, top_clock_mhz = 1980, celsius = 40;
  unsigned idle_milliwatts = 120000, busy_milliwatts = 650000, limit_milliwatts = 700000;
  unsigned pcie_lanes = 16, top_pcie_lanes = 16, pcie_generation = 5;
  unsigned nvlinks = 18, nvlinks_down = 0;  // the last ones are down
  unsigned long long throttle_reasons = 0;  // bits of nvmlClocksEventReason
  bool reports_energy = true;
  bool old_driver = false;  // has throttle reasons by their former name only
};
GpuHealth& gpu_health();
int nvml_users();  // nvmlInit() without nvmlShutdown()

}  // namespace millrace::simulated
