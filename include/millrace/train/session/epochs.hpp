// Which epoch a step is of. A run that goes on with another global batch or data set, from the start of an epoch,
// counts on from there: its origin.
#pragma once
#include <algorithm>
#include <cstdint>

namespace millrace {

// The steps, epochs and samples before the first epoch that had its present steps.
struct Origin {
  std::int64_t step = 0, epoch = 0, samples = 0;
};

struct Epochs {
  std::int64_t rows = 0, global_batch = 1;
  Origin origin;

  std::int64_t steps_per_epoch() const { return (rows + global_batch - 1) / global_batch; }
  // Of the step with this number, from 0.
  std::int64_t epoch(std::int64_t step) const { return origin.epoch + (step - origin.step) / steps_per_epoch(); }
  std::int64_t step_in_epoch(std::int64_t step) const { return (step - origin.step) % steps_per_epoch(); }
  // Samples seen when it is done.
  std::int64_t samples(std::int64_t step) const {
    return origin.samples + (epoch(step) - origin.epoch) * rows +
           std::min((step_in_epoch(step) + 1) * global_batch, rows);
  }
  // Its number had every epoch been like these: what schedules go by.
  std::int64_t even(std::int64_t step) const { return origin.epoch * steps_per_epoch() + step - origin.step; }
};

}  // namespace millrace
