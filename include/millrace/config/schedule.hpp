// The learning rate as a function of the step, and the interval between checkpoints.
#pragma once
#include <cstdint>

#include "millrace/config/run_config.hpp"

namespace millrace {

// Linear warm-up, then constant, step, cosine or linear decay to min_lr. Steps are attempted optimizer steps, so a step
// that is skipped because of an overflow counts.
class Schedule {
 public:
  Schedule(const OptimOptions&, std::int64_t steps_per_epoch, std::int64_t total_steps, std::int64_t global_batch);
  double learning_rate(std::int64_t step) const;  // `step` counts from 0

 private:
  OptimOptions options_;
  double base_, warmup_steps_, steps_per_epoch_, total_steps_;
};

// The value of checkpoint.every. At most one of the four is set.
struct CheckpointInterval {
  std::int64_t steps = 0;
  double epochs = 0, seconds = 0;
  bool automatic = false;  // chosen during the run
  bool never() const { return steps == 0 && epochs == 0 && seconds == 0 && !automatic; }
  static CheckpointInterval parse(const std::string&);  // "500", "2e", "10m", "auto" or "none"; Error(config) otherwise
};

}  // namespace millrace
