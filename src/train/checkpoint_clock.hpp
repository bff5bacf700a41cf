// CheckpointClock: decides when a run writes a checkpoint by checkpoint.every, and measures what a checkpoint costs.
//
// With `auto` the interval is Daly's first-order optimum, sqrt(2 C M) - C (Daly 2006, "A higher order estimate of the
// optimum checkpoint interval for restart dumps", after Young 1974). C is the measured time that a save costs the
// training: the copy at its beginning and the longer steps while it is written. M is the mean time between failures of
// the job, checkpoint.mtbf divided by the number of hosts.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "millrace/config/run_config.hpp"
#include "millrace/config/schedule.hpp"
#include "millrace/train/session/epochs.hpp"

namespace millrace {

// Seconds between checkpoints: at least 30 and ten times the duration of a save, at most an hour.
double optimal_interval(double cost, double duration, double mean_time_between_failures);

class CheckpointClock {
 public:
  using Clock = std::chrono::steady_clock;
  // limited: the job ends at a known time. Then one save is made early, so that its duration is known.
  CheckpointClock(const CheckpointOptions&, int hosts, bool limited, Clock::time_point now = Clock::now());

  bool never() const { return interval_.never(); }
  bool due_after(std::int64_t steps, const Epochs&) const;  // by the number of steps
  bool due_at(Clock::time_point now = Clock::now()) const;  // by the time
  double duration() const { return duration_; }             // of the last save, in seconds; 0: none yet

  void began(double seconds, Clock::time_point began);  // how long the training waited for the copy
  void step(double seconds);                            // a step was collected
  // The save has ended. Returns a line for the user if the interval was chosen anew, else "".
  std::string ended(Clock::time_point now = Clock::now());

 private:
  CheckpointInterval interval_;
  double mtbf_ = 0;  // of the job, in seconds
  int hosts_ = 1;
  bool limited_ = false;
  Clock::time_point last_;             // the beginning of the last save, or of the run
  double duration_ = 0, seconds_ = 0;  // seconds_: the interval of auto; 0: not chosen yet
  bool saving_ = false, measured_ = false;
  double cost_ = 0;        // of the save in progress, so far
  int steps_ = 0;          // during the save in progress
  double usual_step_ = 0;  // mean of recent steps without a save, weighted towards the last ones
};

}  // namespace millrace
