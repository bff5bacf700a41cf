// Learning rate by attempted step: linear warm-up, then constant, step, cosine or linear to min_lr. A pure function.
#pragma once
#include <cstdint>

#include "millrace/config/run_config.hpp"

namespace millrace {

class Schedule {
 public:
  Schedule(const OptimOptions&, std::int64_t steps_per_epoch, std::int64_t total_steps, std::int64_t global_batch);
  double learning_rate(std::int64_t step) const;  // of the step with this number, from 0

 private:
  OptimOptions options_;
  double base_, warmup_steps_, steps_per_epoch_, total_steps_;
};

// checkpoint.every: steps, epochs or time.
struct CheckpointInterval {
  std::int64_t steps = 0;  // 0: none
  double epochs = 0, seconds = 0;
  bool never() const { return steps == 0 && epochs == 0 && seconds == 0; }
  static CheckpointInterval parse(const std::string&);  // Error(config)
};

}  // namespace millrace
