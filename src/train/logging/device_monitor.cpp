#include "train/logging/device_monitor.hpp"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"

namespace millrace {

HealthSampler::HealthSampler(Device& device, double every_seconds) : device_(device) {
  DeviceHealth health;
  known_ = device.read_health(health);
  if (!known_) return;
  stats_.add(health);
  thread_ = std::thread([this, every_seconds] { run(every_seconds); });
}

HealthSampler::~HealthSampler() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HealthSampler::run(double every_seconds) {
  ::setpriority(PRIO_PROCESS, id_t(::syscall(SYS_gettid)), 19);  // for this thread only
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::duration<double>(every_seconds), [this] { return ending_; })) {
    lock.unlock();
    DeviceHealth health;
    const bool known = device_.read_health(health);
    lock.lock();
    if (known) stats_.add(health);
  }
}

DeviceHealthStats HealthSampler::stats() {
  DeviceHealth health;
  if (!known_ || !device_.read_health(health)) return {};
  const std::lock_guard lock(mutex_);
  stats_.add(health);
  return stats_;
}

DeviceMonitor::DeviceMonitor(Session& s) : length_(s.config.run.profile), sampler_(*s.compute.device, 1.0) {
  if (length_ == 0) return;
  std::string why_not;
  tracer_ = s.compute.device->make_activity_tracer(&why_not);
  if (!tracer_) log::warn(fmt::format("run.profile: steps are not traced ({})", why_not));
  double watching = tracer_ ? 1 : 0;  // all ranks measure at the same time, because they also train at the same time
  s.world.all_reduce({&watching, 1}, World::Reduce::min);
  if (watching == 0) return;
  try {
    peaks_ = measure_peaks(s.compute, s.spec.compute);
  } catch (const Error& e) {
    log::warn(fmt::format("cannot measure the peak rates of the device ({}): kernels are shown without a roofline",
                          e.what()));
  }
}

DeviceMonitor::~DeviceMonitor() = default;

void DeviceMonitor::set_roofline(Network& network, const std::vector<std::int64_t>& train_rows) {
  if (!tracer_ || peaks_.memory_bytes <= 0) return;
  RooflineSeconds bounds;
  for (const std::int64_t rows : train_rows) {
    const Program& program = network.planned_program(rows);
    for (int n = 0; n < int(program.graph().nodes.size()); ++n) {
      const double forward_seconds = peaks_.seconds(program.forward_cost(n));
      bounds[program.label(n, NodeWork::forward)] = forward_seconds;
      bounds[program.label(n, NodeWork::backward)] = peaks_.seconds(program.backward_cost(n));
      if (program.schedule().recomputes(n)) bounds[program.label(n, NodeWork::recompute)] = forward_seconds;
    }
  }
  times_ = DeviceTimeCollector(std::move(bounds));
}

void DeviceMonitor::before_enqueue() {
  const std::int64_t step = enqueued_++;
  if (!tracer_ || window_end_ >= 0) return;
  const bool learns = step == 0;
  const bool begins = step >= first_window && (step - first_window) % interval == 0;
  if (!learns && !begins) return;
  tracer_->start();
  window_end_ = step + (learns ? 1 : length_);
}

void DeviceMonitor::after_collect() {
  if (++collected_ != window_end_) return;
  const std::vector<Activity> seen = tracer_->stop();
  if (window_end_ == 1)
    times_.learn(seen);
  else
    times_.add(seen, length_);
  window_end_ = -1;
}

}  // namespace millrace
