// Where a device's time went while it was traced: from its activities to the figures of an account. Plain arithmetic on
// intervals.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/device/activity.hpp"

namespace millrace {

using Interval = std::pair<std::int64_t, std::int64_t>;  // [begin, end)
// Disjoint, in order, without what is empty.
std::vector<Interval> merge_intervals(std::vector<Interval>);
std::int64_t length(const std::vector<Interval>& disjoint);
std::int64_t length_outside(const std::vector<Interval>& disjoint, const std::vector<Interval>& of_disjoint);

// The least seconds that a call named by Device::enter() can take on this device.
using RooflineSeconds = std::map<const char*, double>;

struct KernelTime {
  std::string name;
  std::uint64_t launches = 0;
  double seconds = 0;
  double least_seconds = 0;  // at the roofline; 0: not known
};

struct DeviceTime {
  int steps = 0;
  // From the first activity to the end of the last. busy: something ran; computing: a kernel other than a sum;
  // exposed: sums, or copies, while nothing computed (copies: nor was summed).
  double seconds = 0, busy = 0, computing = 0, exposed_sums = 0, exposed_copies = 0;
  std::vector<KernelTime> kernels;  // the heaviest first
};

// Gathers traces of a few steps each into one account.
class DeviceTimeCollector {
 public:
  explicit DeviceTimeCollector(RooflineSeconds least = {}) : least_(std::move(least)) {}
  // What a kernel must take at least is learnt from launches whose call is known: of a call of several kernels each
  // gets its part of the call's least time, by the time it takes.
  void learn(const std::vector<Activity>&);
  void add(const std::vector<Activity>&, int steps);  // learns, too
  DeviceTime stats(std::size_t most_kernels = 10) const;

 private:
  struct Learnt {
    double least = 0;  // seconds, of so many launches
    std::uint64_t launches = 0;
  };
  RooflineSeconds least_;
  std::map<std::string, KernelTime> kernels_;
  std::map<std::string, Learnt> learnt_;
  DeviceTime sum_;
};

// Clock, power and heat over a run, from samples at even times.
struct DeviceHealthStats {
  int samples = 0;
  double clock_mhz = -1, least_clock_mhz = -1, top_clock_mhz = -1;  // mean, least, what the device could do
  double watts = -1, limit_watts = -1, celsius = -1;                // mean, limit, hottest
  double joules = -1;                                               // between the first sample and the last
  int pcie_generation = -1, pcie_lanes = -1, top_pcie_generation = -1, top_pcie_lanes = -1;  // at most
  int nvlinks = -1;                                                                          // the same
  double nvlink_rate = -1;                                                                   // bytes/s of all, one way
  std::map<std::string, double> slowed;  // by reason: share of the samples
  void add(const DeviceHealth&);

 private:
  double first_joules_ = -1;
  std::map<std::string, int> slowed_count_;
  int clocks_ = 0, powers_ = 0;
};

}  // namespace millrace
