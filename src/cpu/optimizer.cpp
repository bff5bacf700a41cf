// The optimizer on the CPU. Sums of squares are computed for each chunk in double and added in the order of the chunks.
// The calling thread decides whether the step is applied. Then one fused pass updates the weights.
#include <cmath>
#include <limits>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/muon.hpp"

namespace millrace::cpu {

// Eight partial sums for every instruction set, so that the result does not depend on the processor.
MR_TARGET_CLONES double sum_of_squares(const float* g, std::int64_t n) {
  double lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; ++l) lanes[l] += double(g[i + l]) * double(g[i + l]);
  for (int l = 0; i + l < n; ++l) lanes[l] += double(g[i + l]) * double(g[i + l]);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

namespace {

// The scalars of a step, equal for all elements of a segment.
struct Rates {
  float unscale;  // 1 / loss scale, times the factor of gradient clipping
  float learning_rate, decay;
  float momentum;  // sgd, lars
  // adamw, lamb, muon: mean = 1 / (1 - beta1^t), step_size = mean * learning_rate, root = 1 / sqrt(1 - beta2^t)
  float beta1, beta2, mean, step_size, root, epsilon;
};

MR_TARGET_CLONES void sgd_plain(float* __restrict w, const float* __restrict g, std::int64_t n, const Rates& r) {
  const float unscale = r.unscale, rate = r.learning_rate, decay = r.decay;
  for (std::int64_t i = 0; i < n; ++i) w[i] -= rate * (g[i] * unscale + decay * w[i]);
}
MR_TARGET_CLONES void sgd_momentum(float* __restrict w, float* __restrict v, const float* __restrict g, std::int64_t n,
                                   const Rates& r) {
  const float unscale = r.unscale, rate = r.learning_rate, decay = r.decay, momentum = r.momentum;
  for (std::int64_t i = 0; i < n; ++i) {
    v[i] = momentum * v[i] + (g[i] * unscale + decay * w[i]);
    w[i] -= rate * v[i];
  }
}
MR_TARGET_CLONES void sgd_nesterov(float* __restrict w, float* __restrict v, const float* __restrict g, std::int64_t n,
                                   const Rates& r) {
  const float unscale = r.unscale, rate = r.learning_rate, decay = r.decay, momentum = r.momentum;
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = g[i] * unscale + decay * w[i];
    v[i] = momentum * v[i] + d;
    w[i] -= rate * (d + momentum * v[i]);
  }
}
MR_TARGET_CLONES void square_roots(float* __restrict to, const float* __restrict from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = std::sqrt(from[i]);
}
MR_TARGET_CLONES void adamw_moments(float* __restrict m, float* __restrict v, const float* __restrict g, std::int64_t n,
                                    const Rates& r) {
  const float unscale = r.unscale, b1 = r.beta1, b2 = r.beta2;
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = g[i] * unscale;
    m[i] = b1 * m[i] + (1 - b1) * d;
    v[i] = b2 * v[i] + (1 - b2) * d * d;
  }
}
MR_TARGET_CLONES void adamw_step(float* __restrict w, float* __restrict m, float* __restrict v,
                                 const float* __restrict g, std::int64_t n, const Rates& r) {
  const float unscale = r.unscale, b1 = r.beta1, b2 = r.beta2;
  const float kept = 1 - r.learning_rate * r.decay, step_size = r.step_size, root = r.root, epsilon = r.epsilon;
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = g[i] * unscale;
    m[i] = b1 * m[i] + (1 - b1) * d;
    v[i] = b2 * v[i] + (1 - b2) * d * d;
    w[i] = w[i] * kept - step_size * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}
MR_TARGET_CLONES void lamb_direction(float* __restrict u, const float* __restrict w, const float* __restrict m,
                                     const float* __restrict root_v, std::int64_t n, const Rates& r) {
  const float decay = r.decay, mean = r.mean, root = r.root, epsilon = r.epsilon;
  for (std::int64_t i = 0; i < n; ++i) u[i] = m[i] * mean / (root_v[i] * root + epsilon) + decay * w[i];
}
MR_TARGET_CLONES void move_by(float* __restrict w, const float* __restrict u, std::int64_t n, float rate) {
  for (std::int64_t i = 0; i < n; ++i) w[i] -= rate * u[i];
}
// Updates the moments. Returns the sum of squares of the direction.
double lamb_moments(const float* w, float* m, float* v, const float* g, std::int64_t n, const Rates& r) {
  constexpr std::int64_t part = 256;
  alignas(64) float root_v[part], u[part];
  double sum = 0;
  for (std::int64_t at = 0; at < n; at += part) {
    const std::int64_t k = std::min(part, n - at);
    adamw_moments(m + at, v + at, g + at, k, r);
    square_roots(root_v, v + at, k);
    lamb_direction(u, w + at, m + at, root_v, k, r);
    sum += sum_of_squares(u, k);
  }
  return sum;
}
void lamb_weights(float* w, const float* m, const float* v, std::int64_t n, const Rates& r, float ratio) {
  constexpr std::int64_t part = 256;
  alignas(64) float root_v[part], u[part];
  for (std::int64_t at = 0; at < n; at += part) {
    const std::int64_t k = std::min(part, n - at);
    square_roots(root_v, v + at, k);
    lamb_direction(u, w + at, m + at, root_v, k, r);
    move_by(w + at, u, k, r.learning_rate * ratio);
  }
}
MR_TARGET_CLONES void move_towards(float* __restrict running, const float* __restrict stats, std::int64_t n,
                                   float momentum) {
  for (std::int64_t i = 0; i < n; ++i) running[i] = (1 - momentum) * running[i] + momentum * stats[i];
}

MR_TARGET_CLONES void approach(float* __restrict average, const float* __restrict w, std::int64_t n, float fraction) {
  for (std::int64_t i = 0; i < n; ++i) average[i] += fraction * (w[i] - average[i]);
}

// What makes the gradient that of the mean over the labels that count; exactly 1 if all count, with the weight 1.
double mean_factor(const OptimizerSpec& spec, const OptimizerArgs& args) {
  if (spec.loss_positions == 0) return 1;
  const double weight = args.loss_weight[0] + (args.loss_weight[1] + args.loss_weight[2]);
  const double rows = std::nearbyint(1 / double(args.state->row_weight));
  return weight > 0 ? double(spec.loss_positions) * rows / weight : 1;
}

class Optimizer : public OptimizerOp {
  using Kind = OptimizerSpec::Kind;

 public:
  explicit Optimizer(const OptimizerSpec& spec)
      : spec_(spec),
        stats_parts_(spec.stats_parts()),
        chunks_(split_into_chunks(spec)),
        own_sums_(spec.shards.empty() ? std::size_t(square_sum_count(spec)) : 0) {
    dispatch_dtype(spec_.weight_dtype, [](auto) {});
    if (spec_.by_segment()) ratios_.resize(spec_.segments.size());
    if (spec_.kind == Kind::muon) muon_ = std::make_unique<Muon>(spec_, chunks_);
  }

  int phases() const override { return spec_.phases(); }

  void run(int phase, const OptimizerArgs& args) override {
    double* sums = spec_.shards.empty() ? own_sums_.data() : args.sums;
    if (phase == 0) return sum_squares(args, sums);
    if (phase == 1) decide(args, sums);
    if (!apply_) return;
    if (phase == 1 && spec_.kind == Kind::lamb) return advance_moments(args, sums);
    if (phase == 1 && spec_.gathers_updates()) return muon_->write_updates(args, rates_.unscale);
    if (spec_.by_segment()) find_ratios(sums);
    update(args);
  }

 private:
  template <class Body>
  void for_chunks(const Body& body) const {
    parallel_ranges(std::int64_t(chunks_.owned.size()), 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(chunks_.owned[std::size_t(i)]);
    });
  }

  // The sum of squares of a chunk: of the weights, or of the gradient (lamb, in its second phase: of the direction).
  double& of_weights(double* sums, const OptimizerChunk& p) const { return sums[chunks_.all() + p.number]; }
  double& of_other(double* sums, const OptimizerChunk& p) const { return sums[p.number]; }
  void clear_sums_of_other_ranks(double* sums) const {
    if (!spec_.shards.empty()) std::fill_n(sums, chunks_.all() * (spec_.by_segment() ? 2 : 1), 0.0);
  }

  void sum_squares(const OptimizerArgs& args, double* sums) const {
    clear_sums_of_other_ranks(sums);
    for_chunks([&](const OptimizerChunk& p) {
      of_other(sums, p) = sum_of_squares(args.gradient + p.begin, p.count);
      if (spec_.kind == Kind::lars) of_weights(sums, p) = sum_of_squares(args.master + p.master, p.count);
    });
  }

  void decide(const OptimizerArgs& args, const double* sums) {
    StepState& state = *args.state;
    double sum = 0;
    for (std::int64_t i = 0; i < chunks_.all(); ++i) sum += sums[i];
    const double scale = double(state.loss_scale) / mean_factor(spec_, args), norm = std::sqrt(sum) / scale;
    ++state.attempted;
    state.grad_norm = float(norm);
    state.found_inf = state.force_inf != 0 || !std::isfinite(norm);
    state.force_inf = 0;
    apply_ = !state.found_inf;
    if (!apply_) {
      if (state.scale_on) {
        state.loss_scale = std::max(state.loss_scale * state.scale_backoff, state.scale_floor);
        state.clean_steps = 0;
      }
      return;
    }
    set_rates(state, norm, scale);
    ++state.applied;
    ++state.clean_steps;
    if (state.scale_on && state.clean_steps >= state.scale_interval) {
      state.clean_steps = 0;
      if (state.loss_scale * state.scale_growth <= std::numeric_limits<float>::max())
        state.loss_scale *= state.scale_growth;
    }
  }

  void set_rates(const StepState& state, double norm, double scale) {
    const double clip = spec_.clip > 0 ? std::min(1.0, double(spec_.clip) / (norm + 1e-6)) : 1.0;
    const double t = double(state.applied + 1);
    Rates& r = rates_;
    r.unscale = float(clip / scale);
    r.learning_rate = state.learning_rate;
    r.momentum = spec_.momentum;
    r.beta1 = spec_.beta1;
    r.beta2 = spec_.beta2;
    r.epsilon = spec_.epsilon;
    const double mean = 1 / (1 - std::pow(double(spec_.beta1), t));
    r.mean = float(mean);
    r.step_size = float(double(state.learning_rate) * mean);
    r.root = float(1 / std::sqrt(1 - std::pow(double(spec_.beta2), t)));
  }

  Rates rates_of(const OptimizerChunk& p) const {
    Rates r = rates_;
    r.decay = p.weight_decay;
    r.learning_rate *= p.lr_factor;
    r.step_size *= p.lr_factor;
    return r;
  }

  void advance_moments(const OptimizerArgs& args, double* sums) const {  // lamb
    clear_sums_of_other_ranks(sums);
    for_chunks([&](const OptimizerChunk& p) {
      const float* w = args.master + p.master;
      of_weights(sums, p) = sum_of_squares(w, p.count);
      of_other(sums, p) = lamb_moments(w, args.moment1 + p.moments, args.moment2 + p.moments, args.gradient + p.begin,
                                       p.count, rates_of(p));
    });
  }

  // Computes the trust ratios of the segments.
  void find_ratios(const double* sums) {
    const bool lars = spec_.kind == Kind::lars;
    for (std::size_t s = 0; s < ratios_.size(); ++s) {
      double weights = 0, other = 0;
      for (std::int64_t i = chunks_.first[s]; i < chunks_.first[s + 1]; ++i) {
        weights += sums[chunks_.all() + i];
        other += sums[i];
      }
      const double decay = double(spec_.segments[s].weight_decay);
      weights = std::sqrt(weights);
      other = std::sqrt(other) * (lars ? double(rates_.unscale) : 1.0);
      const double below = lars ? other + decay * weights + double(spec_.epsilon) : other;
      const bool scaled = decay != 0 && weights > 0 && other > 0;
      ratios_[s] = scaled ? float((lars ? double(spec_.trust_coefficient) : 1.0) * weights / below) : 1.0f;
    }
  }

  void update(const OptimizerArgs& args) const {
    if (muon_) muon_->update(args, rates_.unscale, rates_.learning_rate);
    for_chunks([&](const OptimizerChunk& p) {
      if (spec_.segments[std::size_t(p.segment)].rows == 0) update(args, p);
      if (spec_.average > 0) approach(args.average + p.moments, args.master + p.master, p.count, spec_.average);
      if (spec_.weight_dtype == DType::f32) return;
      from_float(static_cast<std::byte*>(args.weights) + std::size_t(p.begin) * size_of(spec_.weight_dtype),
                 spec_.weight_dtype, args.master + p.master, p.count);
    });
    for (const auto& [at, n, m] : stats_parts_) move_towards(args.running + at, args.stats + at, n, m);
  }

  void update(const OptimizerArgs& args, const OptimizerChunk& p) const {
    using enum OptimizerSpec::Kind;
    Rates r = rates_of(p);
    float* w = args.master + p.master;
    const float* g = args.gradient + p.begin;
    float* m = args.moment1 + p.moments;
    if (spec_.kind == adamw || spec_.kind == muon) return adamw_step(w, m, args.moment2 + p.moments, g, p.count, r);
    const float ratio = spec_.by_segment() ? ratios_[std::size_t(p.segment)] : 1.0f;
    if (spec_.kind == lamb) return lamb_weights(w, m, args.moment2 + p.moments, p.count, r, ratio);
    if (spec_.kind == lars) {
      r.unscale *= ratio;
      r.decay *= ratio;
    }
    if (spec_.momentum == 0) return sgd_plain(w, g, p.count, r);
    spec_.nesterov ? sgd_nesterov(w, m, g, p.count, r) : sgd_momentum(w, m, g, p.count, r);
  }

  OptimizerSpec spec_;
  std::vector<OptimizerSpec::StatsPart> stats_parts_;
  OptimizerChunks chunks_;
  std::vector<double> own_sums_;  // sums of squares if there are no shards; otherwise the caller owns them
  std::unique_ptr<Muon> muon_;    // muon
  std::vector<float> ratios_;     // trust ratio of each segment; lars, lamb
  Rates rates_{};                 // of this step
  bool apply_ = false;            // this step has no overflow, so it is applied
};

}  // namespace

std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) { return std::make_unique<Optimizer>(spec); }

}  // namespace millrace::cpu
