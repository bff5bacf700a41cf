// Epochs: converts step numbers to epochs and sample counts. When a run resumes at the start of an epoch with another
// global batch or data set, steps per epoch change. Counting then starts from that point, the origin.
#pragma once
#include <algorithm>
#include <cstdint>

namespace millrace {

// The steps, epochs and samples that a run had done when its number of steps per epoch last changed.
struct Origin {
  std::int64_t step = 0, epoch = 0, samples = 0;
};

// Step numbers are within the run, from 0.
struct Epochs {
  std::int64_t rows = 0, global_batch = 1;
  Origin origin;

  std::int64_t steps_per_epoch() const { return (rows + global_batch - 1) / global_batch; }
  std::int64_t epoch(std::int64_t step) const { return origin.epoch + (step - origin.step) / steps_per_epoch(); }
  std::int64_t step_in_epoch(std::int64_t step) const { return (step - origin.step) % steps_per_epoch(); }
  // Samples that the run has seen after this step.
  std::int64_t samples(std::int64_t step) const {
    return origin.samples + (epoch(step) - origin.epoch) * rows +
           std::min((step_in_epoch(step) + 1) * global_batch, rows);
  }
  // The number that this step would have if all epochs had the current number of steps. Learning rate schedules and
  // checkpoint intervals use it.
  std::int64_t even(std::int64_t step) const { return origin.epoch * steps_per_epoch() + step - origin.step; }
};

}  // namespace millrace
