// StepTiming: timings of one step beyond its metrics. The scaling prediction and the load balancer use them.
#pragma once
#include <vector>

#include "millrace/runs/metrics.hpp"

namespace millrace {

// Seconds.
struct StepTiming {
  bool full = false;          // no other step has more rows
  int micro_batches = 0;      // of this rank
  double last_backward = 0;   // backward pass of the last micro-batch, without the all-reduces that stopped it
  double sync_wait = 0;       // agreement of the ranks after the step
  double input_pass = 0;      // per sample; 0: the network has no input pass
  std::vector<double> ready;  // when each milestone of the reducer was reached, since the last backward pass began
};

}  // namespace millrace
