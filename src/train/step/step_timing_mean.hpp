// Means over the steps that a prediction may go by: full ones, after the first few, which make what is made at first
// use.
#pragma once
#include "millrace/runs/metrics.hpp"
#include "millrace/telemetry/account.hpp"
#include "millrace/train/step/step.hpp"

namespace millrace {

class StepTimingMean {
 public:
  void add(const StepMetrics&, const StepTiming&);
  StepTimingStats stats() const;  // but for what does not change from step to step

 private:
  static constexpr int first_steps = 4;
  int seen_ = 0;
  StepTimingStats sum_;
  StepTimeHistogram own_;
};

}  // namespace millrace
