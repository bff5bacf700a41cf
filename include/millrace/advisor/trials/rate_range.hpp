// Learning-rate range test (Smith 2017, arXiv:1506.01186): trains from fresh weights while the learning rate grows
// exponentially from step to step, until the loss diverges. The weights are discarded.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"

namespace millrace {

struct RateSweep {
  std::vector<double> rate, loss;  // of each step; the loss before its update, over all ranks; all values are finite
  bool diverged = false;           // the sweep ended early because the loss diverged
  bool stopped = false;            // the sweep ended early because of a stop signal
};
// Makes `steps` steps with rates growing from `from` to `to`, both above 0. Optimizer, precision and data are as
// configured; schedule and warm-up are not used. The sweep ends early when the loss is not finite, or when its running
// average exceeds four times its minimum. Collective.
RateSweep sweep_rates(World&, const RunConfig&, double from, double to, int steps);

// What a sweep shows; a pure function of it.
struct RateAdvice {
  std::vector<double> smooth;  // the loss of each step, smoothed by lines fitted to its neighbours
  bool falls = false;          // by more than its noise; otherwise the rates below are 0
  double steepest = 0;         // the rate at which the loss falls fastest with the logarithm of the rate
  double least = 0;            // the rate of the minimum
  double rises = 0;      // the rate after the minimum where half of the fall is lost, or where it diverged; 0: none
  double suggested = 0;  // a tenth of `rises`, or `steepest` if there is none; rounded to two digits
};
RateAdvice advise(const RateSweep&);

}  // namespace millrace
