// StepTimingMean: mean times of the steps that the scaling prediction is based on. It leaves out steps that are not
// full, and the first steps, which initialise what is created at first use.
#pragma once
#include "millrace/runs/metrics.hpp"
#include "millrace/telemetry/account.hpp"
#include "millrace/train/step/step.hpp"

namespace millrace {

class StepTimingMean {
 public:
  void add(const StepMetrics&, const StepTiming&);
  StepTimingStats stats() const;  // only the members that are averaged over steps

 private:
  static constexpr int first_steps = 4;
  int seen_ = 0;
  StepTimingStats sum_;
  StepTimeHistogram own_;
};

}  // namespace millrace
