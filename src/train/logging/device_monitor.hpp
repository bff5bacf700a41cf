// Observer: what the device tells of itself during a run. A thread samples clock, power and heat once a second; kernels
// are traced for a few steps now and then (run.profile). On a device that tells nothing it does nothing.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "millrace/device/activity.hpp"
#include "millrace/telemetry/device_time.hpp"
#include "millrace/train/session/network.hpp"
#include "millrace/train/session/peaks.hpp"
#include "millrace/train/session/session.hpp"

namespace millrace {

class HealthSampler {
 public:
  HealthSampler(Device&, double every_seconds);
  ~HealthSampler();
  DeviceHealthStats stats();  // with a sample of this moment

 private:
  void run(double every_seconds);
  Device& device_;
  std::mutex mutex_;  // guards the rest, but for the thread
  std::condition_variable wake_;
  DeviceHealthStats stats_;
  bool known_ = false, ending_ = false;
  std::thread thread_;
};

class DeviceMonitor {
 public:
  // When steps are traced: first measures the device's peaks, so make it before the network takes the memory.
  // Collective then.
  DeviceMonitor(Session&);
  ~DeviceMonitor();
  void know(Network&, const std::vector<std::int64_t>& train_rows);  // what its operations must take at least
  void before_enqueue();                                             // of each step
  bool window_ends() const { return window_end_ == enqueued_; }      // collect all before the next is enqueued
  void after_collect();
  DeviceTime device_time() const { return times_.stats(); }
  DeviceHealthStats health() { return sampler_.stats(); }

  // The windows: step 0, whose operations are launched one by one and so are known by name, teaches what belongs to
  // what; then `length` steps from first_window on, again and again.
  static constexpr std::int64_t first_window = 20, interval = 1000;

 private:
  const int length_;
  Peaks peaks_;
  std::unique_ptr<ActivityTracer> watch_;
  DeviceTimeCollector times_;
  std::int64_t enqueued_ = 0, collected_ = 0, window_end_ = -1;  // steps of this run; of the running window
  HealthSampler sampler_;
};

}  // namespace millrace
