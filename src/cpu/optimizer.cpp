// The optimizer on the CPU: the gradient's norm by fixed blocks in double, the decision on the caller, one fused pass;
// lars and lamb first sum squares by piece, then by segment in the pieces' order.
#include <cmath>
#include <limits>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "ops.hpp"
#include "tile.hpp"

namespace millrace::cpu {
namespace {

constexpr std::int64_t norm_block = 16384;

// Eight sums side by side, whatever the instruction set.
MR_CLONES double sum_of_squares(const float* g, std::int64_t n) {
  double lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; ++l) lanes[l] += double(g[i + l]) * double(g[i + l]);
  for (int l = 0; i + l < n; ++l) lanes[l] += double(g[i + l]) * double(g[i + l]);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// One step's numbers, the same for all elements of a segment. `unscale` holds 1 / loss scale and the clip.
struct Rates {
  float unscale, learning_rate, decay;
  float momentum;                                      // sgd, lars
  float beta1, beta2, mean, step_size, root, epsilon;  // adamw, lamb: mean = 1 / (1 - beta1^t), step_size = mean *
                                                       // learning_rate, root = 1 / sqrt(1 - beta2^t)
};

MR_CLONES void sgd_plain(float* __restrict w, const float* __restrict g, std::int64_t n, const Rates& r) {
  const float unscale = r.unscale, rate = r.learning_rate, decay = r.decay;
  for (std::int64_t i = 0; i < n; ++i) w[i] -= rate * (g[i] * unscale + decay * w[i]);
}
MR_CLONES void sgd_momentum(float* __restrict w, float* __restrict v, const float* __restrict g, std::int64_t n,
                            const Rates& r) {
  const float unscale = r.unscale, rate = r.learning_rate, decay = r.decay, momentum = r.momentum;
  for (std::int64_t i = 0; i < n; ++i) {
    v[i] = momentum * v[i] + (g[i] * unscale + decay * w[i]);
    w[i] -= rate * v[i];
  }
}
MR_CLONES void sgd_nesterov(float* __restrict w, float* __restrict v, const float* __restrict g, std::int64_t n,
                            const Rates& r) {
  const float unscale = r.unscale, rate = r.learning_rate, decay = r.decay, momentum = r.momentum;
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = g[i] * unscale + decay * w[i];
    v[i] = momentum * v[i] + d;
    w[i] -= rate * (d + momentum * v[i]);
  }
}
// By hand: the compiler keeps a branch for errno in every square root, so it does not vectorise.
void square_roots(float* to, const float* from, std::int64_t n) {
  std::int64_t i = 0;
#ifdef __SSE2__
  for (; i + 4 <= n; i += 4) _mm_storeu_ps(to + i, _mm_sqrt_ps(_mm_loadu_ps(from + i)));
#endif
  for (; i < n; ++i) to[i] = std::sqrt(from[i]);
}
MR_CLONES void adamw_moments(float* __restrict m, float* __restrict v, const float* __restrict g, std::int64_t n,
                             const Rates& r) {
  const float unscale = r.unscale, b1 = r.beta1, b2 = r.beta2;
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = g[i] * unscale;
    m[i] = b1 * m[i] + (1 - b1) * d;
    v[i] = b2 * v[i] + (1 - b2) * d * d;
  }
}
MR_CLONES void adamw_weights(float* __restrict w, const float* __restrict m, const float* __restrict root_v,
                             std::int64_t n, const Rates& r) {
  const float kept = 1 - r.learning_rate * r.decay, step_size = r.step_size, root = r.root, epsilon = r.epsilon;
  for (std::int64_t i = 0; i < n; ++i) w[i] = w[i] * kept - step_size * m[i] / (root_v[i] * root + epsilon);
}
void adamw_step(float* __restrict w, float* __restrict m, float* __restrict v, const float* __restrict g,
                std::int64_t n, const Rates& r) {
  constexpr std::int64_t part = 256;  // what three loops share stays in the first-level cache
  alignas(64) float root_v[part];
  for (std::int64_t at = 0; at < n; at += part) {
    const std::int64_t k = std::min(part, n - at);
    adamw_moments(m + at, v + at, g + at, k, r);
    square_roots(root_v, v + at, k);
    adamw_weights(w + at, m + at, root_v, k, r);
  }
}
MR_CLONES void lamb_direction(float* __restrict u, const float* __restrict w, const float* __restrict m,
                              const float* __restrict root_v, std::int64_t n, const Rates& r) {
  const float decay = r.decay, mean = r.mean, root = r.root, epsilon = r.epsilon;
  for (std::int64_t i = 0; i < n; ++i) u[i] = m[i] * mean / (root_v[i] * root + epsilon) + decay * w[i];
}
MR_CLONES void move_by(float* __restrict w, const float* __restrict u, std::int64_t n, float rate) {
  for (std::int64_t i = 0; i < n; ++i) w[i] -= rate * u[i];
}
// The moments; returns the direction's sum of squares.
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
MR_CLONES void move_towards(float* __restrict running, const float* __restrict stats, std::int64_t n, float momentum) {
  for (std::int64_t i = 0; i < n; ++i) running[i] = (1 - momentum) * running[i] + momentum * stats[i];
}

class Optimizer : public OptimizerOp {
 public:
  explicit Optimizer(const OptimizerSpec& spec)
      : spec_(spec), sums_(std::size_t((spec.count + norm_block - 1) / norm_block)) {
    with_type(spec_.weight_dtype, [](auto) {});
    std::int64_t end = 0;
    for (const auto& segment : spec_.segments) {
      if (segment.begin < end || segment.begin % 4 || segment.count < 0 || segment.begin + segment.count > spec_.count)
        fail(Exit::internal, "optimizer: segment [", segment.begin, ", +", segment.count, ") overlaps another, begins ",
             "at no multiple of 4 or ends beyond ", spec_.count);
      end = segment.begin + segment.count;
      for (std::int64_t at = segment.begin; at < end; at += tile_count)
        pieces_.push_back(
            {at, std::min(tile_count, end - at), segment.weight_decay, std::size_t(&segment - spec_.segments.data())});
    }
    if (spec_.by_segment()) piece_sums_.resize(pieces_.size()), ratios_.resize(spec_.segments.size());
  }

  void step(const OptimizerArgs& args) override {
    StepState& state = *args.state;
    const double norm = gradient_norm(args.gradient) / double(state.loss_scale);
    ++state.attempted;
    state.grad_norm = float(norm);
    state.found_inf = state.force_inf != 0 || !std::isfinite(norm);
    state.force_inf = 0;
    if (state.found_inf) {
      if (state.scale_on)
        state.loss_scale = std::max(state.loss_scale * state.scale_backoff, state.scale_floor), state.clean_steps = 0;
      return;
    }
    update(args, norm);
    ++state.applied, ++state.clean_steps;
    if (state.scale_on && state.clean_steps >= state.scale_interval) {
      state.clean_steps = 0;
      if (state.loss_scale * state.scale_growth <= std::numeric_limits<float>::max())
        state.loss_scale *= state.scale_growth;
    }
  }

 private:
  double gradient_norm(const float* gradient) {
    parallel_ranges(std::int64_t(sums_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        sums_[std::size_t(i)] =
            sum_of_squares(gradient + i * norm_block, std::min(norm_block, spec_.count - i * norm_block));
    });
    double sum = 0;
    for (const double s : sums_) sum += s;
    return std::sqrt(sum);
  }

  Rates rates(const StepState& state, double norm) const {
    const double clip = spec_.clip > 0 ? std::min(1.0, double(spec_.clip) / (norm + 1e-6)) : 1.0;
    const double t = double(state.applied + 1);
    Rates r{};
    r.unscale = float(clip / double(state.loss_scale));
    r.learning_rate = state.learning_rate;
    r.momentum = spec_.momentum;
    r.beta1 = spec_.beta1, r.beta2 = spec_.beta2, r.epsilon = spec_.epsilon;
    const double mean = 1 / (1 - std::pow(double(spec_.beta1), t));
    r.mean = float(mean), r.step_size = float(double(state.learning_rate) * mean);
    r.root = float(1 / std::sqrt(1 - std::pow(double(spec_.beta2), t)));
    return r;
  }

  struct Piece {
    std::int64_t begin, count;
    float decay;
    std::size_t segment;
  };
  struct Squares {
    double weights = 0, other = 0;  // other: gradient (lars), direction (lamb)
  };

  template <class Body>
  void for_pieces(const Body& body) const {
    parallel_ranges(std::int64_t(pieces_.size()), 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(std::size_t(i), pieces_[std::size_t(i)]);
    });
  }

  // The trust ratios of the segments; lamb's moments advance on the way.
  void find_ratios(const OptimizerArgs& args, const Rates& common) {
    const bool lars = spec_.kind == OptimizerSpec::Kind::lars;
    for_pieces([&](std::size_t i, const Piece& piece) {
      Rates r = common;
      r.decay = piece.decay;
      const std::int64_t at = piece.begin, n = piece.count;
      piece_sums_[i] = {
          sum_of_squares(args.master + at, n),
          lars ? sum_of_squares(args.gradient + at, n)
               : lamb_moments(args.master + at, args.moment1 + at, args.moment2 + at, args.gradient + at, n, r)};
    });
    std::vector<Squares> sums(ratios_.size());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      sums[pieces_[i].segment].weights += piece_sums_[i].weights;
      sums[pieces_[i].segment].other += piece_sums_[i].other;
    }
    for (std::size_t s = 0; s < sums.size(); ++s) {
      const double decay = double(spec_.segments[s].weight_decay), weights = std::sqrt(sums[s].weights),
                   other = std::sqrt(sums[s].other) * (lars ? double(common.unscale) : 1.0);
      const double below = lars ? other + decay * weights + double(spec_.epsilon) : other;
      const bool scaled = decay != 0 && weights > 0 && other > 0;
      ratios_[s] = scaled ? float((lars ? double(spec_.trust) : 1.0) * weights / below) : 1.0f;
    }
  }

  void update(const OptimizerArgs& args, double norm) {
    const Rates common = rates(*args.state, norm);
    if (spec_.by_segment()) find_ratios(args, common);
    for_pieces([&](std::size_t, const Piece& piece) {
      update(args, common, piece);
      if (spec_.weight_dtype == DType::f32) return;
      from_float(static_cast<std::byte*>(args.weights) + std::size_t(piece.begin) * size_of(spec_.weight_dtype),
                 spec_.weight_dtype, args.master + piece.begin, piece.count);
    });
    if (spec_.stats_count) move_towards(args.running, args.stats, spec_.stats_count, spec_.stats_momentum);
  }

  void update(const OptimizerArgs& args, Rates r, const Piece& piece) const {
    using enum OptimizerSpec::Kind;
    r.decay = piece.decay;
    float* w = args.master + piece.begin;
    const float* g = args.gradient + piece.begin;
    float* m = args.moment1 + piece.begin;
    if (spec_.kind == adamw) return adamw_step(w, m, args.moment2 + piece.begin, g, piece.count, r);
    if (spec_.kind == lamb)
      return lamb_weights(w, m, args.moment2 + piece.begin, piece.count, r, ratios_[piece.segment]);
    if (spec_.kind == lars) r.unscale *= ratios_[piece.segment], r.decay *= ratios_[piece.segment];
    if (spec_.momentum == 0)
      sgd_plain(w, g, piece.count, r);
    else if (spec_.nesterov)
      sgd_nesterov(w, m, g, piece.count, r);
    else
      sgd_momentum(w, m, g, piece.count, r);
  }

  OptimizerSpec spec_;
  std::vector<double> sums_;  // of squares, by block
  std::vector<Piece> pieces_;
  std::vector<Squares> piece_sums_;  // lars, lamb
  std::vector<float> ratios_;        // by segment
};

}  // namespace

std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec& spec) { return std::make_unique<Optimizer>(spec); }

}  // namespace millrace::cpu
