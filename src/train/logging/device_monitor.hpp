// DeviceMonitor: observes the device during a run. A thread samples clock, power and temperature once a second. With
// run.profile, the kernels of a few steps are traced at intervals. On a device that supports neither it does nothing.
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

// Samples the health of the device in a thread of low priority.
class HealthSampler {
 public:
  HealthSampler(Device&, double every_seconds);
  ~HealthSampler();
  DeviceHealthStats stats();  // includes a sample taken now

 private:
  void run(double every_seconds);
  Device& device_;
  std::mutex mutex_;  // guards the members below, except the thread
  std::condition_variable wake_;
  DeviceHealthStats stats_;
  bool known_ = false, ending_ = false;
  std::thread thread_;
};

class DeviceMonitor {
 public:
  // With run.profile it first measures the device's peak rates. Construct it before the network allocates its memory.
  // Collective when steps are traced.
  DeviceMonitor(Session&);
  ~DeviceMonitor();
  // Computes the lower bound of each operation's time by the roofline model.
  void set_roofline(Network&, const std::vector<std::int64_t>& train_rows);
  void before_enqueue();  // call before each step
  // The traced window ends with the step enqueued last: collect all steps before enqueuing the next.
  bool window_ends() const { return window_end_ == enqueued_; }
  void after_collect();
  DeviceTime device_time() const { return times_.stats(); }
  DeviceHealthStats health() { return sampler_.stats(); }

  // Step 0 launches its operations one by one, so its trace shows which kernels belong to which operation. After it,
  // run.profile steps are traced at step first_window and then every `interval` steps.
  static constexpr std::int64_t first_window = 20, interval = 1000;

 private:
  const int length_;
  Peaks peaks_;
  std::unique_ptr<ActivityTracer> tracer_;
  DeviceTimeCollector times_;
  std::int64_t enqueued_ = 0, collected_ = 0;  // steps since this launch
  std::int64_t window_end_ = -1;               // first step after the window being traced; -1: none
  HealthSampler sampler_;
};

}  // namespace millrace
