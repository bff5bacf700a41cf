// The learning rate as a function of the step, and the interval between checkpoints.
#pragma once
#include <cstdint>

#include "millrace/config/run_config.hpp"

namespace millrace {

// Linear warm-up over w steps, then the schedule over the other total_steps - w steps. Step s of the warm-up has
// lr * (s + 1) / (w + 1), so step w is the first with the full learning rate. A decay reaches min_lr at step
// total_steps, one after the last. Steps are attempted optimizer steps, so a step that is skipped because of an
// overflow counts. plateau multiplies the full learning rate by plateau_rate (PlateauState). one_cycle has a rise of
// its own and no warm-up; its last step has the lowest learning rate.
class Schedule {
 public:
  // Error(config): the decay of wsd begins before the warm-up ends.
  Schedule(const OptimOptions&, std::int64_t steps_per_epoch, std::int64_t total_steps, std::int64_t global_batch);
  double learning_rate(std::int64_t step, double plateau_rate = 1) const;  // `step` counts from 0

 private:
  double decay_start() const;  // wsd: the step at which the decay begins

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
