// Time as the watchdog counts it.
#pragma once
#include <algorithm>
#include <cstdint>

namespace millrace::watchdog {

// Counts the time in which this process ran. After a pause, of this process or of the whole machine, one tick counts as
// at most `longest` seconds.
class TickClock {
 public:
  TickClock(double longest, double now) : longest_(longest), last_(now) {}
  // Returns the seconds since the last tick that count. now: of any monotonic clock.
  double tick(double now) {
    const double passed = std::min(now - last_, longest_);
    last_ = now;
    return passed;
  }

 private:
  double longest_, last_;
};

// Counts the time since a thread made progress: its counter changed, or it computed.
class ProgressMeter {
 public:
  // A thread that waits uses less CPU time in a tick.
  static constexpr double least_cpu_seconds = 100e-6;

  // cpu_seconds: of the thread; ignored unless computing_counts. Returns the counted seconds without progress.
  double tick(double passed, std::uint64_t beats, double cpu_seconds, bool computing_counts) {
    const bool computed = computing_counts && cpu_seconds - cpu_ > least_cpu_seconds;
    quiet_ = beats != beats_ || computed ? 0 : quiet_ + passed;
    beats_ = beats;
    cpu_ = cpu_seconds;
    return quiet_;
  }

 private:
  std::uint64_t beats_ = 0;
  double cpu_ = 0, quiet_ = 0;
};

}  // namespace millrace::watchdog
