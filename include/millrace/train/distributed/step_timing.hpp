// StepTiming: what a step tells besides its metrics, for predictions and for the ranks' shares.
#pragma once
#include <vector>

#include "millrace/runs/metrics.hpp"

namespace millrace {

// Seconds.
struct StepTiming {
  bool full = false;  // of as many rows as any
  int micro_batches = 0;
  double last_backward = 0, sync_wait = 0;  // of the last micro-batch; for what the ranks agree on
  double input_pass = 0;                    // of a sample; 0: the network has none
  std::vector<double> ready;                // at the reducer's milestones, since that backward pass began
};

}  // namespace millrace
