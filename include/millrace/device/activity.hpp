// What a device ran and how it fared: the measurements behind an account's busy time. Kernels and copies are traced
// while they are watched, a few steps at a time; clock, power and heat are read now and then.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct Activity {
  enum class Kind { kernel, sum, copy };  // sum: a kernel of the collective
  Kind kind = Kind::kernel;
  std::string name;            // of a kernel, readable
  std::int64_t began = 0;      // nanoseconds; only differences mean anything
  std::int64_t ended = 0;      // never before began
  const char* work = nullptr;  // the address given to Device::enter() around its launch; null where not known, as in
                               // a replayed step
  std::uint64_t occasion = 0;  // number of that enter(): launches of one call of an operation share it
};

class ActivityTracer {
 public:
  virtual ~ActivityTracer() = default;
  virtual void start() = 0;                  // what is launched from here on is traced; slows the step a little
  virtual std::vector<Activity> stop() = 0;  // in no order; what has not ended yet is left out
};

// Negative: not known.
struct DeviceHealth {
  double clock_mhz = -1, top_clock_mhz = -1;
  double watts = -1, limit_watts = -1;
  double celsius = -1;
  double joules = -1;                                 // counts up from an origin of its own
  int pcie_generation = -1, pcie_lanes = -1;          // of its link to the host; an idle GPU may slow it down
  int top_pcie_generation = -1, top_pcie_lanes = -1;  // that GPU and host allow
  int nvlinks = -1;                                   // that are up
  double nvlink_rate = -1;                            // bytes/s of them all, one way
  std::vector<std::string> throttle_reasons{};        // why the clock is throttled now: "power cap", "heat"
};

}  // namespace millrace
