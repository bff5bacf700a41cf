// SGD and AdamW as PyTorch defines them, in double, with everything around them: unscale, clip, skip, loss scale.
#pragma once
#include <cmath>
#include <vector>

#include "millrace/ops/optimizer.hpp"

namespace millrace::reference {

struct OptimizerState {
  std::vector<double> master, moment1, moment2, running;
  double loss_scale = 1, grad_norm = 0;
  std::uint64_t applied = 0, attempted = 0, clean_steps = 0;
  bool found_inf = false;
};

inline void optimizer_step(const OptimizerSpec& s, const StepState& step, OptimizerState& o,
                           const std::vector<double>& gradient, const std::vector<double>& stats) {
  double squares = 0;
  for (const double g : gradient) squares += g * g;
  o.grad_norm = std::sqrt(squares) / o.loss_scale;
  ++o.attempted;
  o.found_inf = !std::isfinite(squares);
  if (o.found_inf) {
    if (step.scale_on)
      o.loss_scale = std::max(o.loss_scale * double(step.scale_backoff), double(step.scale_floor)), o.clean_steps = 0;
    return;
  }
  const double clip = s.clip > 0 ? std::min(1.0, double(s.clip) / (o.grad_norm + 1e-6)) : 1;
  const double lr = step.learning_rate, b1 = s.beta1, b2 = s.beta2, t = double(o.applied + 1);
  for (const auto& segment : s.segments)
    for (std::size_t i = std::size_t(segment.begin); i < std::size_t(segment.begin + segment.count); ++i) {
      double g = gradient[i] / o.loss_scale * clip, &w = o.master[i];
      if (s.kind == OptimizerSpec::Kind::adamw) {
        double &m = o.moment1[i], &v = o.moment2[i];
        w *= 1 - lr * double(segment.weight_decay);
        m = b1 * m + (1 - b1) * g, v = b2 * v + (1 - b2) * g * g;
        w -= lr * (m / (1 - std::pow(b1, t))) / (std::sqrt(v / (1 - std::pow(b2, t))) + double(s.epsilon));
      } else {
        g += double(segment.weight_decay) * w;
        if (s.momentum != 0) {
          o.moment1[i] = double(s.momentum) * o.moment1[i] + g;
          g = s.nesterov ? g + double(s.momentum) * o.moment1[i] : o.moment1[i];
        }
        w -= lr * g;
      }
    }
  for (std::size_t i = 0; i < stats.size(); ++i)
    o.running[i] = (1 - double(s.stats_momentum)) * o.running[i] + double(s.stats_momentum) * stats[i];
  ++o.applied, ++o.clean_steps;
  if (step.scale_on && o.clean_steps >= step.scale_interval)
    o.loss_scale *= double(step.scale_growth), o.clean_steps = 0;
}

}  // namespace millrace::reference
