#include "millrace/telemetry/timeline.hpp"

namespace millrace {
namespace {

double between(Timeline::Clock::time_point a, Timeline::Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

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

}  // namespace millrace
