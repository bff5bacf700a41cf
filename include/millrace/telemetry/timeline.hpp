// Timeline: the wall time of one rank cut into disjoint phases. The host is in exactly one phase at any time
// (enter/scope); a step's inner phases come from device marks and are moved over with add(). Marking costs one clock
// read.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

// When this process was started, by the kernel's account: before libraries were loaded and MPI began.
std::chrono::steady_clock::time_point process_start();

enum class Phase {
  startup,
  data_wait,
  copy,
  forward,
  backward,
  communication,
  optimizer,
  evaluation,
  checkpoint,
  other
};
inline constexpr int phase_count = 10;
const char* name_of(Phase);  // "data_wait", ...

class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Timeline(Clock::time_point begin = Clock::now());
  Phase enter(Phase);  // returns the phase left
  // Moves seconds from the current phase's account to another's (a step's inner phases, read from marks).
  void add(Phase, double seconds);
  double wall_seconds() const;
  std::array<double, phase_count> seconds() const;  // sums to wall_seconds()

  class Scope {
   public:
    Scope(Timeline& t, Phase p) : t_(t), before_(t.enter(p)) {}
    ~Scope() { t_.enter(before_); }
    Scope(const Scope&) = delete;

   private:
    Timeline& t_;
    Phase before_;
  };

 private:
  Clock::time_point begin_, since_;
  Phase phase_ = Phase::startup;
  std::array<double, phase_count> seconds_{};
};

double timestamp_cost();  // seconds, the least of some
double unix_time();       // seconds since 1970

}  // namespace millrace
