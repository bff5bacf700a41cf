// Clock, power and temperature of a device over a run, from samples at regular intervals.
#pragma once
#include <map>
#include <string>

#include "millrace/device/activity.hpp"

namespace millrace {

// Values are -1 where the device does not report them.
struct DeviceHealthStats {
  int samples = 0;
  double clock_mhz = -1, least_clock_mhz = -1;        // mean and minimum
  double top_clock_mhz = -1;                          // the maximum that the device supports
  double watts = -1, limit_watts = -1;                // mean, and the power limit
  double celsius = -1;                                // maximum
  double joules = -1;                                 // between the first sample and the last
  int pcie_generation = -1, pcie_lanes = -1;          // the maximum over the samples
  int top_pcie_generation = -1, top_pcie_lanes = -1;  // what GPU and host support
  int nvlinks = -1;                                   // active links
  double nvlink_rate = -1;                            // bytes/s of all of them, in one direction
  std::map<std::string, double> throttle_reasons;     // why the clock was throttled, and the share of samples
  void add(const DeviceHealth&);

 private:
  double first_joules_ = -1;
  std::map<std::string, int> reason_count_;
  int clocks_ = 0, powers_ = 0;  // samples with a clock, with power
};

}  // namespace millrace
