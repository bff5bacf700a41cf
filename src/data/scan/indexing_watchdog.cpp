#include "data/scan/indexing_watchdog.hpp"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {

IndexingWatchdog::IndexingWatchdog(const FaultOptions& options)
    : slow_seconds_(options.slow_read), timeout_(options.read_timeout) {
  if (slow_seconds_ <= 0 && timeout_ <= 0) return;
  if (::pthread_getcpuclockid(::pthread_self(), &clock_) != 0) return;
  thread_ = std::thread([this] { run(); });
}

IndexingWatchdog::~IndexingWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void IndexingWatchdog::at(const std::string& what) {
  watchdog::beat();
  if (!thread_.joinable()) return;
  const std::lock_guard lock(mutex_);
  what_ = what;
}

double IndexingWatchdog::cpu_seconds() const {
  timespec t{};
  ::clock_gettime(clock_, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

void IndexingWatchdog::run() {
  double shortest = 4;
  for (const double limit : {slow_seconds_, timeout_})
    if (limit > 0) shortest = std::min(shortest, limit);
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> interval(shortest / 4);
  std::unique_lock lock(mutex_);
  for (auto last = Clock::now(); !wake_.wait_for(lock, interval, [this] { return ending_; });) {
    // Limited: the whole process may have been stopped for a while.
    const std::chrono::duration<double> elapsed =
        std::min<std::chrono::duration<double>>(Clock::now() - last, 2 * interval);
    check(elapsed.count());
    last = Clock::now();
  }
}

void IndexingWatchdog::check(double elapsed_seconds) {
  const double now = cpu_seconds();
  unchanged_seconds_ = now == std::exchange(last_cpu_seconds_, now) ? unchanged_seconds_ + elapsed_seconds : 0;
  if (timeout_ > 0 && unchanged_seconds_ >= timeout_)  // ends the process: nothing else can end the blocked call
    fail(Exit::data,
         "listing the data: {} has not answered for {} (data.read_timeout). check the file system that holds it", what_,
         format_seconds(unchanged_seconds_));
  if (slow_seconds_ <= 0 || unchanged_seconds_ < slow_seconds_ || warned_ == what_) return;
  warned_ = what_;
  log::local(fmt::format("warning: listing the data: {} has not answered for {}. check the file system that holds it",
                         what_, format_seconds(unchanged_seconds_)));
}

}  // namespace millrace
