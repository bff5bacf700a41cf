// SGD and AdamW as PyTorch defines them, LARS and LAMB as their papers do, in double, with everything around them:
// unscale, clip, skip, loss scale.
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
  using Kind = OptimizerSpec::Kind;
  for (const auto& segment : s.segments) {
    const std::size_t begin = std::size_t(segment.begin), end = std::size_t(segment.begin + segment.count);
    const double decay = segment.weight_decay;
    const auto unscaled = [&](std::size_t i) { return gradient[i] / o.loss_scale * clip; };
    std::vector<double> direction(end - begin);  // of Adam, before the learning rate
    if (s.kind == Kind::adamw || s.kind == Kind::lamb)
      for (std::size_t i = begin; i < end; ++i) {
        double &m = o.moment1[i], &v = o.moment2[i], g = unscaled(i);
        m = b1 * m + (1 - b1) * g, v = b2 * v + (1 - b2) * g * g;
        direction[i - begin] =
            (m / (1 - std::pow(b1, t))) / (std::sqrt(v / (1 - std::pow(b2, t))) + double(s.epsilon)) +
            (s.kind == Kind::lamb ? decay * o.master[i] : 0);
      }
    double of_weights = 0, of_gradient = 0, of_direction = 0;
    for (std::size_t i = begin; i < end; ++i) {
      of_weights += o.master[i] * o.master[i], of_gradient += unscaled(i) * unscaled(i);
      of_direction += direction[i - begin] * direction[i - begin];
    }
    of_weights = std::sqrt(of_weights), of_gradient = std::sqrt(of_gradient), of_direction = std::sqrt(of_direction);
    double ratio = 1;
    if (s.kind == Kind::lars && decay != 0 && of_weights > 0 && of_gradient > 0)
      ratio = double(s.trust_coefficient) * of_weights / (of_gradient + decay * of_weights + double(s.epsilon));
    if (s.kind == Kind::lamb && decay != 0 && of_weights > 0 && of_direction > 0) ratio = of_weights / of_direction;

    for (std::size_t i = begin; i < end; ++i) {
      double& w = o.master[i];
      if (s.kind == Kind::adamw) {
        w = w * (1 - lr * decay) - lr * direction[i - begin];
      } else if (s.kind == Kind::lamb) {
        w -= lr * ratio * direction[i - begin];
      } else {
        double g = ratio * (unscaled(i) + decay * w);
        if (s.momentum != 0) {
          o.moment1[i] = double(s.momentum) * o.moment1[i] + g;
          g = s.nesterov ? g + double(s.momentum) * o.moment1[i] : o.moment1[i];
        }
        w -= lr * g;
      }
    }
  }
  for (std::size_t i = 0; i < stats.size(); ++i)
    o.running[i] = (1 - double(s.stats_momentum)) * o.running[i] + double(s.stats_momentum) * stats[i];
  ++o.applied, ++o.clean_steps;
  if (step.scale_on && o.clean_steps >= step.scale_interval)
    o.loss_scale *= double(step.scale_growth), o.clean_steps = 0;
}

}  // namespace millrace::reference
