#include "data/read/slow_read_monitor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
SlowReadMonitor::SlowReadMonitor(const ShardIndex& index, const FaultOptions& options)
    : index_(index),
      slow_seconds_(options.slow_read),
      timeout_(options.read_timeout),
      warned_(index.shards.size(), false) {
  if (slow_seconds_ <= 0 && timeout_ <= 0) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    fail(Exit::config,
         "cannot start the thread that watches for slow reads ({}). raise ulimit -u, or set data.slow_read = 0 and "
         "data.read_timeout = 0",
         e.code().message());
  }
}

SlowReadMonitor::~SlowReadMonitor() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SlowReadMonitor::add(const InFlightReads& places) {
  const std::lock_guard lock(mutex_);
  watched_.push_back({&places});
}

void SlowReadMonitor::remove(const InFlightReads& places) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const WatchedWorker& w) { return w.places == &places; });
}

std::vector<std::int64_t> SlowReadMonitor::slow() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> out;
  for (std::size_t s = 0; s < warned_.size(); ++s)
    if (warned_[s]) out.push_back(std::int64_t(s));
  return out;
}

void SlowReadMonitor::run() {
  double shortest = 4;
  for (const double limit : {slow_seconds_, timeout_})
    if (limit > 0) shortest = std::min(shortest, limit);
  const std::chrono::duration<double> interval(shortest / 4);
  std::unique_lock lock(mutex_);
  for (double last = steady_seconds(); !wake_.wait_for(lock, interval, [this] { return ending_; });) {
    const double passed = std::min(steady_seconds() - last, 2 * interval.count());
    for (WatchedWorker& w : watched_) check(w, passed);
    last = steady_seconds();
  }
}

void SlowReadMonitor::check(WatchedWorker& w, double passed) {
  const std::uint64_t inside = w.places->inside();
  if (inside != std::exchange(w.inside, inside)) w.seen.fill(0);
  if (inside == 0) return;
  for (std::size_t p = 0; p < InFlightReads::count; ++p) {
    const std::uint64_t current_read = w.places->current_read(p);
    if (current_read != w.seen[p] || current_read == 0) {
      if (current_read != w.seen[p]) watchdog::file_progress();
      w.seen[p] = current_read;
      w.unchanged_seconds[p] = 0;
      continue;
    }
    const double unchanged_seconds = w.unchanged_seconds[p] += passed;
    if (unchanged_seconds < slow_seconds_ && unchanged_seconds < timeout_) continue;
    const std::size_t s = shard_of(index_, InFlightReads::first_of(current_read));
    const std::string path = index_.shards[s].path;
    // A read that does not return cannot be cancelled. This error in the monitor's thread ends the process.
    if (timeout_ > 0 && unchanged_seconds >= timeout_)
      fail(Exit::data, "a read of {} has not returned for {} (data.read_timeout). check the file system that holds it",
           path, format_seconds(unchanged_seconds));
    if (slow_seconds_ <= 0 || unchanged_seconds < slow_seconds_ || warned_[s]) continue;
    warned_[s] = true;
    log::local(
        fmt::format("warning: a read of {} has not returned for {}. check the file system that holds it; further slow "
                    "reads of this file are not reported",
                    path, format_seconds(unchanged_seconds)));
  }
}

}  // namespace millrace
