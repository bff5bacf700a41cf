// What a device can report about itself: a trace of the kernels and copies that it ran, and its health (clock, power,
// temperature). Tracing is on for a few steps at a time; the health is read every few seconds.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct Activity {
  enum class Kind { kernel, sum, copy };  // sum: a kernel of the collective, such as an all-reduce
  Kind kind = Kind::kernel;
  std::string name;             // of the kernel, demangled
  std::int64_t began = 0;       // nanoseconds from an arbitrary origin
  std::int64_t ended = 0;       // at least `began`
  const char* label = nullptr;  // the label given to Device::push_label() around the launch; null: not known, as in a
                                // replayed step
  std::uint64_t label_instance =
      0;  // the number of that push_label() call: all launches of one call of an operation share it
};

class ActivityTracer {
 public:
  virtual ~ActivityTracer() = default;
  virtual void start() = 0;                  // traces what is launched from now on; slows the step a little
  virtual std::vector<Activity> stop() = 0;  // the trace, in no order; without activities that have not ended yet
};

// The state of a device at one moment. A negative value is not known.
struct DeviceHealth {
  double clock_mhz = -1, top_clock_mhz = -1;          // now, and the largest that the device allows
  double watts = -1, limit_watts = -1;                // power drawn now, and its limit
  double celsius = -1;                                // temperature
  double joules = -1;                                 // energy since an arbitrary origin
  int pcie_generation = -1, pcie_lanes = -1;          // the link to the host now; an idle GPU may slow it down
  int top_pcie_generation = -1, top_pcie_lanes = -1;  // the fastest link that GPU and host allow
  int nvlinks = -1;                                   // number of NVLinks that are up
  double nvlink_rate = -1;                            // bytes/s of all NVLinks together, in one direction
  std::vector<std::string> throttle_reasons{};  // why the clock is throttled now: "power cap", "heat"; empty: it is not
};

}  // namespace millrace
