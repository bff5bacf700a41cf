// The optimizers in double: SGD, AdamW and Muon as defined by PyTorch, LARS and LAMB as defined by their papers.
// Includes unscaling, clipping, skipped steps and the dynamic loss scale.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

#include "millrace/ops/optimizer.hpp"
#include "reference/newton_schulz.hpp"

namespace millrace::reference {

struct OptimizerState {
  std::vector<double> master, moment1, moment2, running, average;
  double loss_scale = 1, grad_norm = 0;
  std::uint64_t applied = 0, attempted = 0, clean_steps = 0;
  bool found_inf = false;
};

// The update of one segment of the parameters. unscaled: its gradient without loss scale, after clipping.
class SegmentStep {
 public:
  SegmentStep(const OptimizerSpec& spec, double learning_rate, OptimizerState& state, std::vector<double> unscaled)
      : spec_(spec), lr_(learning_rate), state_(state), gradient_(std::move(unscaled)) {}

  void run(const OptimizerSegment& segment) {
    const std::size_t begin = std::size_t(segment.begin);
    const double decay = segment.weight_decay;
    if (spec_.kind == Kind::muon && segment.rows > 0) return run_muon(segment);
    const bool adam = spec_.by_adam();
    const std::vector<double> direction = adam ? adam_direction(begin, decay) : gradient_;
    const double ratio = trust_ratio(begin, decay, direction);
    for (std::size_t i = 0; i < gradient_.size(); ++i) {
      double& w = state_.master[begin + i];
      if (adam && spec_.kind != Kind::lamb)
        w = w * (1 - lr_ * decay) - lr_ * direction[i];
      else if (spec_.kind == Kind::lamb)
        w -= lr_ * ratio * direction[i];
      else
        w -= lr_ * with_momentum(begin + i, ratio * (gradient_[i] + decay * w));
    }
  }

 private:
  using Kind = OptimizerSpec::Kind;

  void run_muon(const OptimizerSegment& s) {
    using enum OptimizerSpec::MuonScale;
    const double mu = spec_.momentum, rows = double(s.rows), columns = double(s.columns);
    std::vector<double> update;
    for (std::size_t i = 0; i < gradient_.size(); ++i) {
      double& v = state_.moment1[std::size_t(s.begin) + i];
      v = mu * v + (1 - mu) * gradient_[i];
      update.push_back(spec_.nesterov ? mu * v + (1 - mu) * gradient_[i] : v);
    }
    update = newton_schulz(update, std::size_t(s.rows), std::size_t(s.columns), spec_.newton_schulz_steps);
    const double factor = spec_.muon_scale == original          ? std::sqrt(std::max(1.0, rows / columns))
                          : spec_.muon_scale == match_rms_adamw ? 0.2 * std::sqrt(std::max(rows, columns))
                                                                : std::sqrt(rows / columns);
    for (std::size_t i = 0; i < update.size(); ++i) {
      double& w = state_.master[std::size_t(s.begin) + i];
      w = w * (1 - lr_ * double(s.weight_decay)) - lr_ * factor * update[i];
    }
  }

  // Adam's update before the learning rate; LAMB adds the decay to it.
  std::vector<double> adam_direction(std::size_t begin, double decay) {
    const double b1 = spec_.beta1, b2 = spec_.beta2, t = double(state_.applied + 1);
    std::vector<double> out;
    for (std::size_t i = 0; i < gradient_.size(); ++i) {
      double& m = state_.moment1[begin + i];
      double& v = state_.moment2[begin + i];
      const double g = gradient_[i];
      m = b1 * m + (1 - b1) * g;
      v = b2 * v + (1 - b2) * g * g;
      out.push_back((m / (1 - std::pow(b1, t))) / (std::sqrt(v / (1 - std::pow(b2, t))) + double(spec_.epsilon)) +
                    (spec_.kind == Kind::lamb ? decay * state_.master[begin + i] : 0));
    }
    return out;
  }

  static double norm(const double* values, std::size_t count) {
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i) squares += values[i] * values[i];
    return std::sqrt(squares);
  }

  double trust_ratio(std::size_t begin, double decay, const std::vector<double>& direction) const {
    const double weights = norm(state_.master.data() + begin, gradient_.size());
    const double gradient = norm(gradient_.data(), gradient_.size());
    const double update = norm(direction.data(), direction.size());
    if (decay == 0 || weights == 0) return 1;
    if (spec_.kind == Kind::lars && gradient > 0)
      return double(spec_.trust_coefficient) * weights / (gradient + decay * weights + double(spec_.epsilon));
    return spec_.kind == Kind::lamb && update > 0 ? weights / update : 1;
  }

  double with_momentum(std::size_t i, double g) {
    if (spec_.momentum == 0) return g;
    state_.moment1[i] = double(spec_.momentum) * state_.moment1[i] + g;
    return spec_.nesterov ? g + double(spec_.momentum) * state_.moment1[i] : state_.moment1[i];
  }

  const OptimizerSpec& spec_;
  const double lr_;
  OptimizerState& state_;
  const std::vector<double> gradient_;
};

inline void optimizer_step(const OptimizerSpec& s, const StepState& step, OptimizerState& o,
                           const std::vector<double>& gradient, const std::vector<double>& stats,
                           double loss_weight = 12.5) {
  double squares = 0;
  for (const double g : gradient) squares += g * g;
  const double mean = s.loss_positions > 0 ? double(s.loss_positions) / double(step.row_weight) / loss_weight : 1;
  const double unscale = mean / o.loss_scale;
  o.grad_norm = std::sqrt(squares) * unscale;
  ++o.attempted;
  o.found_inf = !std::isfinite(squares);
  if (o.found_inf) {
    if (!step.scale_on) return;
    o.loss_scale = std::max(o.loss_scale * double(step.scale_backoff), double(step.scale_floor));
    o.clean_steps = 0;
    return;
  }
  const double clip = s.clip > 0 ? std::min(1.0, double(s.clip) / (o.grad_norm + 1e-6)) : 1;
  for (const auto& segment : s.segments) {
    std::vector<double> unscaled;
    for (std::int64_t i = segment.begin; i < segment.begin + segment.count; ++i)
      unscaled.push_back(gradient[std::size_t(i)] * unscale * clip);
    const double rate = double(step.learning_rate) * double(segment.lr_factor);
    SegmentStep(s, rate, o, unscaled).run(segment);
    if (s.average > 0)
      for (std::int64_t i = segment.begin; i < segment.begin + segment.count; ++i) {
        double& average = o.average[std::size_t(i)];
        average += double(s.average) * (o.master[std::size_t(i)] - average);
      }
  }
  for (std::size_t i = 0; i < stats.size(); ++i) {
    double momentum = double(s.stats_momentum);
    for (const OptimizerSpec::StatsPart& part : s.own_momenta)
      if (std::int64_t(i) >= part.begin && std::int64_t(i) < part.begin + part.count) momentum = double(part.momentum);
    o.running[i] = (1 - momentum) * o.running[i] + momentum * stats[i];
  }
  ++o.applied;
  ++o.clean_steps;
  if (step.scale_on && o.clean_steps >= step.scale_interval) {
    o.loss_scale *= double(step.scale_growth);
    o.clean_steps = 0;
  }
}

}  // namespace millrace::reference
