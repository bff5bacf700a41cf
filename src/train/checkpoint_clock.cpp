#include "train/checkpoint_clock.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/units.hpp"

namespace millrace {
namespace {

constexpr double first_save = 60;  // seconds after the start, to measure what a save takes
constexpr double min_interval = 30, max_interval = 3600;
constexpr double durations_per_interval = 10;

double seconds_between(CheckpointClock::Clock::time_point a, CheckpointClock::Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

double optimal_interval(double cost, double duration, double mean_time_between_failures) {
  const double daly = std::sqrt(2 * cost * mean_time_between_failures) - cost;
  return std::min(std::max({daly, min_interval, durations_per_interval * duration}), max_interval);
}

CheckpointClock::CheckpointClock(const CheckpointOptions& options, int hosts, bool limited, Clock::time_point now)
    : interval_(CheckpointInterval::parse(options.every)),
      mtbf_(options.mtbf / hosts),
      hosts_(hosts),
      limited_(limited),
      last_(now) {}

bool CheckpointClock::due_after(std::int64_t steps, const Epochs& epochs) const {
  if (interval_.steps > 0) return steps % interval_.steps == 0;
  if (interval_.epochs <= 0) return false;
  const double per = double(epochs.steps_per_epoch()) * interval_.epochs;
  const double done = double(epochs.even(steps));
  return std::floor(done / per) > std::floor((done - 1) / per);
}

bool CheckpointClock::due_at(Clock::time_point now) const {
  const double passed = seconds_between(last_, now);
  if (saving_ || never()) return false;
  if (!measured_ && (limited_ || interval_.automatic) && passed >= first_save) return true;
  const double interval = interval_.automatic ? seconds_ : interval_.seconds;
  return interval > 0 && passed >= interval;
}

void CheckpointClock::began(double seconds, Clock::time_point began) {
  last_ = began;
  saving_ = true;
  cost_ = seconds;
  steps_ = 0;
}

void CheckpointClock::step(double seconds) {
  steps_ += saving_;
  if (saving_)
    cost_ += usual_step_ > 0 ? std::max(0.0, seconds - usual_step_) : 0;
  else
    usual_step_ = usual_step_ > 0 ? 0.9 * usual_step_ + 0.1 * seconds : seconds;
}

std::string CheckpointClock::ended(Clock::time_point now) {
  saving_ = false;
  measured_ = true;
  duration_ = seconds_between(last_, now);
  const bool alone = steps_ == 0;  // without steps, such as the last save, its cost is not known
  if (!interval_.automatic || (alone && seconds_ > 0)) return "";
  const double chosen = optimal_interval(cost_, duration_, mtbf_);
  const bool differs = std::abs(chosen - seconds_) > 0.25 * seconds_;
  if (!differs) return "";
  seconds_ = chosen;
  return fmt::format(
      "checkpoint.every = auto: every {} (a save takes {} and costs the training {}; checkpoint.mtbf on {} host{}: one "
      "failure in {})",
      format_seconds(chosen), format_seconds(duration_), format_seconds(cost_), hosts_, hosts_ == 1 ? "" : "s",
      format_seconds(mtbf_));
}

}  // namespace millrace
