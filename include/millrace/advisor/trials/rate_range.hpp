// Learning-rate range test (Smith 2017, arXiv:1506.01186): steps of training from fresh weights, the rate growing
// exponentially from one to the next, until the loss diverges. Nothing of it stays.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"

namespace millrace {

struct RateSweep {
  std::vector<double> rate, loss;  // of each step; the loss before its update, over all ranks; finite
  bool diverged = false;           // it ended early for that
  bool stopped = false;            // or because it was asked to
};
// So many steps from one rate to the other, both above 0, with the optimizer, precision and data as configured, but
// schedule and warm-up. Ends where the loss is not finite or, smoothed, four times its least. Collective.
RateSweep sweep_rates(World&, const RunConfig&, double from, double to, int steps);

// What the sweep says. Pure functions of it.
struct RateAdvice {
  std::vector<double> smooth;  // the loss: lines fitted to some neighbours of each step
  bool falls = false;          // by more than its noise; else the rates below are 0
  double steepest = 0;         // rate at which it falls most with the rate's logarithm
  double least = 0;            // rate at which it is least
  double rises = 0;            // behind that, where half of the fall is lost again, or it diverged; 0: nowhere
  double suggested = 0;        // a tenth of `rises`, or where there is none `steepest`; to two digits
};
RateAdvice advise(const RateSweep&);

}  // namespace millrace
