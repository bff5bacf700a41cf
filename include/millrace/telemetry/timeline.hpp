// Timeline: divides the wall time of one rank into disjoint phases. The host is in exactly one phase at any time; it
// changes the phase with enter() or Scope. The phases inside a step are measured by device timestamps, and add() moves
// their time out of the current phase. Entering a phase costs one clock read.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

// When the kernel started this process, before libraries were loaded and MPI was initialised.
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
  Phase enter(Phase);  // returns the previous phase
  // Moves seconds from the current phase to another one.
  void add(Phase, double seconds);
  double wall_seconds() const;
  std::array<double, phase_count> seconds() const;  // sums to wall_seconds()

  // Enters a phase, and returns to the previous phase at the end of the scope.
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

double timestamp_cost();  // seconds of one push_label(); the minimum of several measurements
double unix_time();       // seconds since 1970

}  // namespace millrace
