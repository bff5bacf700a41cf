// Computes where the time of a device went while it was traced, which becomes the device part of an account. Plain
// arithmetic on the intervals of activities.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/device/activity.hpp"

namespace millrace {

using Interval = std::pair<std::int64_t, std::int64_t>;  // [begin, end), nanoseconds
// The union as disjoint, non-empty intervals in ascending order.
std::vector<Interval> merge_intervals(std::vector<Interval>);
std::int64_t length(const std::vector<Interval>& disjoint);
// The length of the part of the first that the second does not cover.
std::int64_t length_outside(const std::vector<Interval>& disjoint, const std::vector<Interval>& of_disjoint);

// The roofline: the minimum seconds of a labelled operation on this device.
using RooflineSeconds = std::map<const char*, double>;

struct KernelTime {
  std::string name;
  std::uint64_t launches = 0;
  double seconds = 0;
  double least_seconds = 0;  // of all launches at the roofline; 0: not known
  bool has_bound() const { return least_seconds > 0 && least_seconds <= seconds; }
  // Faster than the measured peaks, as from a cache: the roofline is no bound for it.
  bool passes_bound() const { return least_seconds > seconds; }
};

// Seconds of the traced steps.
struct DeviceTime {
  int steps = 0;
  double seconds = 0;               // from the first activity to the end of the last
  double busy = 0;                  // anything ran
  double computing = 0;             // a kernel ran that is not a collective
  double exposed_sums = 0;          // a collective ran while nothing computed
  double exposed_copies = 0;        // a copy ran while neither a kernel nor a collective ran
  std::vector<KernelTime> kernels;  // the most expensive one first
};

// Collects traces of a few steps each.
class DeviceTimeCollector {
 public:
  explicit DeviceTimeCollector(RooflineSeconds roofline = {}) : roofline_(std::move(roofline)) {}
  // Learns the roofline of kernels from launches with a known label. If an operation launches several kernels, its
  // minimum time is divided among them in proportion to their times.
  void learn(const std::vector<Activity>&);
  void add(const std::vector<Activity>&, int steps);  // also learns
  DeviceTime stats(std::size_t max_kernels = 10) const;

 private:
  struct Learnt {
    double seconds = 0;  // at the roofline, of all launches below
    std::uint64_t launches = 0;
  };
  RooflineSeconds roofline_;
  std::map<std::string, KernelTime> kernels_;
  std::map<std::string, Learnt> learnt_;
  DeviceTime sum_;
};

}  // namespace millrace
