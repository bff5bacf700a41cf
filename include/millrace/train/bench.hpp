// Benches of a step: what the whole costs against the sum of its parts, on the very program that trains.
#pragma once
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/train/peaks.hpp"
#include "millrace/train/run_config.hpp"

namespace millrace {

struct OpTime {
  std::string name, kind, implementation;
  double forward_seconds = 0, backward_seconds = 0;  // best of the repeats, alone
  Cost forward, backward;
};

struct StepBench {
  double step_seconds = 0;                                  // median of whole micro-batches: forward and backward
  double ops_seconds = 0;                                   // sum of the operations' own best times
  double communication_seconds = 0, full_step_seconds = 0;  // exposed, of whole steps with sums and optimizer; medians
  std::vector<OpTime> ops;
  Peaks peaks;
  std::string str() const;  // a table: totals by kind, the heaviest operations, each beside its roofline
};

// Collective; every rank measures at the same time.
StepBench bench_step(World&, const RunConfig&, int repeats);

}  // namespace millrace
