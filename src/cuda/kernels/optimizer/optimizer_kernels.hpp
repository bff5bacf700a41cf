// The kernel functors of the optimizers. A block handles one chunk of the parameters that this rank owns. The sums of
// the chunks are added in a fixed order. The last pack of a chunk may extend into the padding behind its segment; the
// padding is zero and stays zero.
#pragma once
#include <cmath>
#include <limits>
#include <type_traits>

#include "cuda/block/half.hpp"
#include "millrace/device/step_state.hpp"
#include "millrace/ops/optimizer.hpp"

namespace millrace::cuda {

using Chunk = OptimizerChunk;
constexpr int chunk_threads = 256, pack = 4;  // a thread handles four packs

struct SegmentChunks {
  std::int64_t first, count;  // the chunks of the segment
  float decay;                // weight decay
};

// The scalars of one step, which are the same for all elements. They are computed on the device.
struct StepScalars {
  bool apply;                    // false: the gradients overflowed, and the step changes nothing
  float unscale, learning_rate;  // unscale: 1 / loss scale, times the factor of gradient clipping
  float inverse_bias_correction1,
      inverse_sqrt_bias_correction2;  // Adam's corrections: 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
  float step_size;                    // learning rate * inverse_bias_correction1
};

// Calls body(i) for each pack of a chunk; i: the offset of the pack in the chunk.
template <class Block, class Body>
MR_DEVICE_INLINE void for_each_pack_of(Block& block, const Chunk& chunk, const Body& body) {
  for (int i = block.thread() * pack; i < chunk.count; i += block.threads() * pack) body(i);
}

struct SumSquares {  // in double, so that a finite gradient has a finite norm
  const Chunk* chunks;
  const float* values;
  bool of_master;  // values is the master
  double* sums;    // one for each chunk, at the chunk's number
  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Chunk chunk = chunks[block.index()];
    const float* own = values + (of_master ? chunk.master : chunk.begin);
    double sum = 0;
    for_each_pack_of(block, chunk, [&](int i) {
      float x[pack];
      load(x, own + i);
      for (int k = 0; k < pack; ++k) sum += double(x[k]) * double(x[k]);
    });
    sum = block.sum(sum);
    if (block.thread() == 0) sums[chunk.number] = sum;
  }
};

// Launched as one block: computes the norm of the gradient, decides whether the step is applied, and updates loss scale
// and counters.
struct PrepareStep {
  const double* sums;
  std::int64_t count;
  StepState* state;
  StepScalars* step_scalars;
  const double* loss_weight;  // OptimizerArgs::loss_weight
  double loss_positions;      // OptimizerSpec::loss_positions
  float clip, beta1, beta2;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    double sum = 0;
    for (std::int64_t i = block.thread(); i < count; i += block.threads()) sum += sums[i];
    sum = block.sum(sum);
    if (block.thread() == 0) decide(*state, sqrt(sum), double(state->loss_scale) / mean_factor());
  }

 private:
  MR_DEVICE_INLINE double mean_factor() const {
    const double weight = loss_positions > 0 ? loss_weight[0] + (loss_weight[1] + loss_weight[2]) : 0;
    return weight > 0 ? loss_positions * rint(1 / double(state->row_weight)) / weight : 1;
  }
  MR_DEVICE_INLINE void decide(StepState& s, double scaled_norm, double scale) const {
    const double norm = scaled_norm / scale;
    ++s.attempted;
    s.grad_norm = float(norm);
    const bool finite = norm <= std::numeric_limits<double>::max();  // false for a NaN too
    s.found_inf = s.force_inf != 0 || !finite;
    s.force_inf = 0;
    step_scalars->apply = !s.found_inf;
    if (s.found_inf) {
      const float lower = s.loss_scale * s.scale_backoff;
      if (s.scale_on) {
        s.loss_scale = lower > s.scale_floor ? lower : s.scale_floor;
        s.clean_steps = 0;
      }
      return;
    }
    const double factor = double(clip) / (norm + 1e-6), t = double(s.applied + 1);
    const double inverse_bias_correction1 = 1 / (1 - pow(double(beta1), t));
    step_scalars->unscale = float((clip > 0 && factor < 1 ? factor : 1.0) / scale);
    step_scalars->learning_rate = s.learning_rate;
    step_scalars->inverse_bias_correction1 = float(inverse_bias_correction1);
    step_scalars->step_size = float(double(s.learning_rate) * inverse_bias_correction1);
    step_scalars->inverse_sqrt_bias_correction2 = float(1 / sqrt(1 - pow(double(beta2), t)));
    ++s.applied;
    ++s.clean_steps;
    if (s.scale_on && s.clean_steps >= s.scale_interval) {
      s.clean_steps = 0;
      const float higher = s.loss_scale * s.scale_growth;
      if (higher <= std::numeric_limits<float>::max()) s.loss_scale = higher;
    }
  }
};

struct UpdateRunningStats {
  const StepScalars* step_scalars;
  float* running;
  const float* stats;
  float momentum;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    if (step_scalars->apply) running[i] = (1 - momentum) * running[i] + momentum * stats[i];
  }
};

// The update rules: how one element changes. decay and trust_ratio belong to the segment of the element; g is the
// gradient before it is multiplied by d.unscale.
struct SgdPlain {
  static constexpr int moments = 0;
  static constexpr bool takes_gradient = true;
  MR_DEVICE_INLINE void operator()(const StepScalars& d, float decay, float trust_ratio, float g, float& w, float&,
                                   float&) const {
    w -= d.learning_rate * (trust_ratio * (g * d.unscale + decay * w));
  }
};
struct SgdMomentum {
  static constexpr int moments = 1;
  static constexpr bool takes_gradient = true;
  float momentum;
  bool nesterov;
  MR_DEVICE_INLINE void operator()(const StepScalars& d, float decay, float trust_ratio, float g, float& w, float& v,
                                   float&) const {
    const float change = trust_ratio * (g * d.unscale + decay * w);
    v = momentum * v + change;
    w -= d.learning_rate * (nesterov ? change + momentum * v : v);
  }
};
struct AdamMoments {
  float beta1, beta2, epsilon;
  MR_DEVICE_INLINE void advance(const StepScalars& d, float g, float& m, float& v) const {
    const float x = g * d.unscale;
    m = beta1 * m + (1 - beta1) * x;
    v = beta2 * v + (1 - beta2) * x * x;
  }
  MR_DEVICE_INLINE float divisor(const StepScalars& d, float v) const {
    return sqrtf(v) * d.inverse_sqrt_bias_correction2 + epsilon;
  }
  MR_DEVICE_INLINE float lamb_direction(const StepScalars& d, float decay, float w, float m, float v) const {
    return m * d.inverse_bias_correction1 / divisor(d, v) + decay * w;
  }
};
struct AdamW {
  static constexpr int moments = 2;
  static constexpr bool takes_gradient = true;
  AdamMoments adam;
  MR_DEVICE_INLINE void operator()(const StepScalars& d, float decay, float, float g, float& w, float& m,
                                   float& v) const {
    adam.advance(d, g, m, v);
    w = w * (1 - d.learning_rate * decay) - d.step_size * m / adam.divisor(d, v);
  }
};
struct Lamb {  // runs after LambMoments
  static constexpr int moments = 2;
  static constexpr bool takes_gradient = false;
  AdamMoments adam;
  MR_DEVICE_INLINE void operator()(const StepScalars& d, float decay, float trust_ratio, float, float& w, float& m,
                                   float& v) const {
    w -= d.learning_rate * trust_ratio * adam.lamb_direction(d, decay, w, m, v);
  }
};

// Applies the update rule to all elements in one pass. W: the type of the 16-bit weights; float: there are none.
template <class Rule, class W>
struct Update {
  const Chunk* chunks;
  const StepScalars* step_scalars;
  const float* trust_ratio;  // one for each segment; null: all are 1
  const float* gradient;
  std::int64_t gradient_begin;                  // gradient[0] belongs to this element of the flat buffers
  float *master, *moment1, *moment2, *average;  // average: null if there is none
  float average_fraction;                       // OptimizerSpec::average
  W* weights;
  Rule rule;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    StepScalars d = *step_scalars;
    if (!d.apply) return;
    const Chunk chunk = chunks[block.index()];
    d.learning_rate *= chunk.lr_factor;
    d.step_size *= chunk.lr_factor;
    const float ratio = trust_ratio ? trust_ratio[chunk.segment] : 1.0f;
    for_each_pack_of(block, chunk, [&](int i) {
      const std::int64_t at = chunk.begin + i, kept = chunk.moments + i, weight = chunk.master + i;
      float w[pack], g[pack] = {}, m[pack] = {}, v[pack] = {};
      load(w, master + weight);
      if constexpr (Rule::takes_gradient) load(g, gradient + (at - gradient_begin));
      if constexpr (Rule::moments > 0) load(m, moment1 + kept);
      if constexpr (Rule::moments > 1) load(v, moment2 + kept);
      for (int k = 0; k < pack; ++k) rule(d, chunk.weight_decay, ratio, g[k], w[k], m[k], v[k]);
      store(master + weight, w);
      if constexpr (Rule::takes_gradient && Rule::moments > 0) store(moment1 + kept, m);
      if constexpr (Rule::takes_gradient && Rule::moments > 1) store(moment2 + kept, v);
      if constexpr (!std::is_same_v<W, float>) store(weights + at, w);
      if (!average) return;
      float a[pack];
      load(a, average + kept);
      for (int k = 0; k < pack; ++k) a[k] += average_fraction * (w[k] - a[k]);
      store(average + kept, a);
    });
  }
};

// The first pass of LAMB: updates the moments, and sums the squares of the weights and of the direction for each chunk.
struct LambMoments {
  const Chunk* chunks;
  const StepScalars* step_scalars;
  const float *gradient, *master;
  float *moment1, *moment2;
  double *weight_sums, *direction_sums;
  AdamMoments adam;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const StepScalars d = *step_scalars;
    if (!d.apply) return;
    const Chunk chunk = chunks[block.index()];
    double of_weights = 0, of_direction = 0;
    for_each_pack_of(block, chunk, [&](int i) {
      const std::int64_t at = chunk.begin + i, kept = chunk.moments + i;
      float w[pack], g[pack], m[pack], v[pack];
      load(w, master + chunk.master + i);
      load(g, gradient + at);
      load(m, moment1 + kept);
      load(v, moment2 + kept);
      for (int k = 0; k < pack; ++k) {
        adam.advance(d, g[k], m[k], v[k]);
        const float u = adam.lamb_direction(d, chunk.weight_decay, w[k], m[k], v[k]);
        of_weights += double(w[k]) * double(w[k]);
        of_direction += double(u) * double(u);
      }
      store(moment1 + kept, m);
      store(moment2 + kept, v);
    });
    of_weights = block.sum(of_weights);
    of_direction = block.sum(of_direction);
    if (block.thread() == 0) {
      weight_sums[chunk.number] = of_weights;
      direction_sums[chunk.number] = of_direction;
    }
  }
};

// Computes the trust ratio of a segment, with one block. other_sums: squares of the gradient (LARS) or of the direction
// (LAMB).
struct ComputeTrustRatios {
  const SegmentChunks* segments;
  const double *weight_sums, *other_sums;
  const StepScalars* step_scalars;
  float* trust_ratio;
  bool lars;
  float factor, epsilon;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    if (!step_scalars->apply) return;
    const SegmentChunks segment = segments[block.index()];
    double weights = 0, other = 0;
    for (std::int64_t i = block.thread(); i < segment.count; i += block.threads()) {
      weights += weight_sums[segment.first + i];
      other += other_sums[segment.first + i];
    }
    weights = sqrt(block.sum(weights));
    other = sqrt(block.sum(other));
    if (block.thread() != 0) return;
    if (lars) other *= double(step_scalars->unscale);
    const double decay = double(segment.decay);
    double ratio = 1;
    if (decay != 0 && weights > 0 && other > 0)
      ratio = lars ? double(factor) * weights / (other + decay * weights + double(epsilon)) : weights / other;
    trust_ratio[block.index()] = float(ratio);
  }
};

}  // namespace millrace::cuda
