#include "millrace/advisor/trials/rate_range.hpp"

#include <algorithm>
#include <cmath>

#include "millrace/system/signals.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/step.hpp"

namespace millrace {
namespace {

// An exponential moving average with bias correction; it only decides when to end.
class MovingAverage {
 public:
  double add(double value) {
    sum_ = 0.9 * sum_ + 0.1 * value;
    weight_ = 0.9 * weight_ + 0.1;
    return sum_ / weight_;
  }

 private:
  double sum_ = 0, weight_ = 0;
};

}  // namespace

RateSweep sweep_rates(World& world, const RunConfig& config, double from, double to, int steps) {
  Session s(world, config, Session::Use::train);
  Network network(s.compute, s.spec, plan_within_memory(s));
  init_loss_scale(s, network);
  Loader loader(*s.compute.device, *s.data.train_source, s.data.train, *s.batching.train_order, s.step_loader_options(),
                s.micro_batches(0, steps));
  StepRunner runner(s, network, loader);
  const int lag = steps_in_flight(*s.compute.device);
  const auto rate_of = [&](int step) { return from * std::pow(to / from, steps > 1 ? double(step) / (steps - 1) : 0); };
  RateSweep out;
  MovingAverage average;
  double least = 0;
  bool ending = false;
  for (int issued = 0, collected = 0; collected < issued || (issued < steps && !ending);) {
    if (issued < steps && !ending) {
      runner.enqueue(issued, rate_of(issued));
      ++issued;
    }
    if (issued < steps && !ending && issued - collected <= lag) continue;
    const StepResult result = runner.collect(collected++, {.stop = stop_signal() != 0});
    if (ending || !result.counted) continue;  // this step was already in flight
    const double loss = result.metrics.loss;
    // An overflow while the loss scale can still fall is no divergence: that step was skipped.
    const bool lost = !std::isfinite(loss) || (result.found_inf && result.at_floor);
    if (!lost) {
      out.rate.push_back(rate_of(collected - 1));
      out.loss.push_back(loss);
      const double now = average.add(loss);
      least = out.loss.size() == 1 ? now : std::min(least, now);
      out.diverged = least > 0 && now > 4 * least;
    }
    out.diverged = out.diverged || (lost && result.at_floor);
    out.stopped = result.stop && !out.diverged;
    ending = out.diverged || result.stop;
  }
  return out;
}

}  // namespace millrace
