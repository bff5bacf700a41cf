#include "millrace/telemetry/timeline.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>

namespace millrace {
namespace {

double between(Timeline::Clock::time_point a, Timeline::Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

std::chrono::steady_clock::time_point process_start() {
  const auto now = Timeline::Clock::now();
  std::ifstream in("/proc/self/stat");
  std::string text;
  std::getline(in, text);
  const auto name_end = text.rfind(')');  // the name may contain blanks
  timespec since_boot{};
  if (name_end == std::string::npos || ::clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return now;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double started = 0;  // field 22, in clock ticks after boot; man 5 proc
  if (!(fields >> started)) return now;
  const double age =
      double(since_boot.tv_sec) + double(since_boot.tv_nsec) * 1e-9 - started / double(::sysconf(_SC_CLK_TCK));
  return now - std::chrono::duration_cast<Timeline::Clock::duration>(std::chrono::duration<double>(std::max(0.0, age)));
}

const char* name_of(Phase p) {
  static constexpr std::array<const char*, phase_count> names{"startup",    "data_wait",     "copy",      "forward",
                                                              "backward",   "communication", "optimizer", "evaluation",
                                                              "checkpoint", "other"};
  return names[std::size_t(p)];
}

Timeline::Timeline(Clock::time_point begin) : begin_(begin), since_(begin) {}

Phase Timeline::enter(Phase next) {
  const auto now = Clock::now();
  const Phase before = phase_;
  seconds_[std::size_t(before)] += between(since_, now);
  since_ = now;
  phase_ = next;
  return before;
}

void Timeline::add(Phase phase, double seconds) {
  seconds_[std::size_t(phase)] += seconds;
  seconds_[std::size_t(phase_)] -= seconds;
}

double Timeline::wall_seconds() const { return between(begin_, Clock::now()); }

std::array<double, phase_count> Timeline::seconds() const {
  auto out = seconds_;
  out[std::size_t(phase_)] += between(since_, Clock::now());
  return out;
}

double timestamp_cost() {
  constexpr int count = 64;
  double min = 1;
  Timeline t;
  for (int round = 0; round < 8; ++round) {
    const auto began = Timeline::Clock::now();
    for (int i = 0; i < count; ++i) t.enter(Phase(i % phase_count));
    min = std::min(min, between(began, Timeline::Clock::now()) / count);
  }
  return min;
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace millrace
