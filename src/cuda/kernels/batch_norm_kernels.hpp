// The kernel functors of batch norm. They work on the lines that batch_norm_tiling.hpp defines.
#pragma once
#include <cmath>

#include "cuda/kernels/batch_norm_tiling.hpp"

namespace millrace::cuda::batch_norm {

// Sums of x - shift and of its square, for each channel. The shift is the mean of four rows spread over the tensor. It
// keeps the sums small, so that little precision is lost when the square of the mean is subtracted.
template <class T>
struct Statistics {
  Layout l;
  const T* x;
  float *partial, *shift;

  MR_DEVICE_INLINE void pick(float (&to)[pack], const Place& p) const {
    const std::int64_t step = l.rows < 4 ? 1 : l.rows / 4;
    const int picks = l.rows < 4 ? int(l.rows) : 4;
    for (int i = 0; i < pack; ++i) to[i] = 0;
    for (int j = 0; j < picks; ++j) {
      const T* row = x + j * step * l.channels;
      float value[pack];
      if (l.width == l.channels)
        load(value, row + p.column);
      else
        for (int i = 0; i < pack; ++i) value[i] = widen(row[(p.column + i) % l.channels]);
      for (int i = 0; i < pack; ++i) to[i] += value[i];
    }
    for (int i = 0; i < pack; ++i) to[i] /= float(picks);
  }

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Place p = place_of(block, l);
    float sum[pack] = {}, square[pack] = {};
    if (!p.idle) {
      float s[pack];
      pick(s, p);
      if (p.first == 0 && p.lane == 0)
        for (int i = 0; i < pack; ++i)
          if (p.column + i < l.channels) shift[p.column + i] = s[i];
      for_each_line<at_once<T, 1>, true>(
          l, p, [&](std::int64_t e, int n) { return load_raw(x + e, n); },
          [&](const Raw<T>& raw, std::int64_t, int n) {
            for (int i = 0; i < pack; ++i) {
              if (i >= n) continue;
              const float d = widen(raw.v[i]) - s[i];
              sum[i] += d;
              square[i] += d * d;
            }
          });
    }
    reduce_block(block, l, p, sum, square, partial);
  }
};

template <class T>
struct Gradients {
  Raw<T> dy, x;
  unsigned bits;
};

template <class T, bool masked>
struct GradientInputs {
  const T *dy, *x;
  const std::uint8_t* bits;
  MR_DEVICE_INLINE Gradients<T> operator()(std::int64_t e, int n) const {
    return {load_raw(dy + e, n), load_raw(x + e, n), masked ? bits[e / pack] : 0xffu};
  }
};

// Sums of g and of g * (x - mean), where g is the gradient behind the ReLU: diff_dst where the ReLU was active,
// otherwise 0.
template <class T, bool masked>
struct GradientSums {
  Layout l;
  GradientInputs<T, masked> inputs;
  const float* mean;
  float* partial;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Place p = place_of(block, l);
    float sum[pack] = {}, product[pack] = {};
    if (!p.idle) {
      float m[pack];
      load_channel_values(m, mean, l, p);
      for_each_line<at_once<T, 2>, true>(l, p, inputs, [&](const Gradients<T>& in, std::int64_t, int n) {
        for (int i = 0; i < pack; ++i) {
          if (i >= n) continue;
          const float g = in.bits >> i & 1 ? widen(in.dy.v[i]) : 0.0f;
          sum[i] += g;
          product[i] += g * (widen(in.x.v[i]) - m[i]);
        }
      });
    }
    reduce_block(block, l, p, sum, product, partial);
  }
};

constexpr int finish_channels = 32;  // channels of a block: one for each thread of a warp
constexpr std::size_t finish_bytes(int threads) { return std::size_t(threads) * 2 * sizeof(double); }

// Calls use(channel, a, b) with the two sums of each channel, over all blocks and all columns of the channel.
template <class Block, class Use>
MR_DEVICE_INLINE void reduce_partials(Block& block, const Layout& l, const float* partial, int slabs, const Use& use) {
  double* shared = block.template shared<double>();  // [2][threads]
  const int threads = block.threads(), lane = block.thread() / finish_channels, lanes = threads / finish_channels;
  const std::int64_t channel = block.index() * finish_channels + block.thread() % finish_channels;
  const int repeat = int(l.width / l.channels);
  double a = 0, b = 0;
  if (channel < l.channels)
    for (int term = lane; term < slabs * repeat; term += lanes) {
      const float* at = partial + std::int64_t(term / repeat) * 2 * l.width + term % repeat * l.channels + channel;
      a += double(at[0]);
      b += double(at[l.width]);
    }
  shared[block.thread()] = a;
  shared[threads + block.thread()] = b;
  block.sync();
  if (lane > 0 || channel >= l.channels) return;
  for (int t = block.thread() + finish_channels; t < threads; t += finish_channels) {
    a += shared[t];
    b += shared[threads + t];
  }
  use(channel, a, b);
}

MR_DEVICE_INLINE void put(float* to, float value, bool add) { *to = add ? *to + value : value; }

// Computes mean, 1 / standard deviation and running statistics of a channel from the sums of x - shift and its square.
struct Moments {
  std::int64_t rows, channels;
  float epsilon, *mean, *inverse, *stats;  // stats: null if the running statistics are not needed
  bool add;
  float images;
  const float* row_weight;

  MR_DEVICE_INLINE void operator()(std::int64_t c, double shift, double sum, double square) const {
    const double n = double(rows), spread = square - sum * sum / n, squares = spread < 0 ? 0 : spread;  // keeps NaN
    const double center = shift + sum / n;
    mean[c] = float(center);
    inverse[c] = float(1 / sqrt(squares / n + double(epsilon)));
    if (!stats) return;
    const double weight = double(images) * double(*row_weight);
    put(stats + c, float(weight * center), add);
    put(stats + channels + c, float(weight * squares / (n > 1 ? n - 1 : 1)), add);
  }
};

struct FinishStatistics {
  Layout l;
  int slabs;
  const float *partial, *shift;
  Moments moments;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    reduce_partials(block, l, partial, slabs,
                    [&](std::int64_t c, double sum, double square) { moments(c, double(shift[c]), sum, square); });
  }
};

struct StatisticsFromSums {  // index c is a channel
  const float* sums;
  Moments moments;
  MR_DEVICE_INLINE void operator()(std::int64_t c) const {
    moments(c, 0, double(sums[c]), double(sums[moments.channels + c]));
  }
};

// Computes mean_g and slope from the gradients of gamma and beta of a channel. With them, diff_src is
// factor * (g - mean_g - (x - mean) * slope): the two terms come from the mean and from the variance.
struct GradientCoefficients {
  std::int64_t rows;
  const float* inverse;
  float *mean_g, *slope, *diff_gamma, *diff_beta;  // the last two: null if not needed
  bool add_gamma, add_beta;

  MR_DEVICE_INLINE void operator()(std::int64_t c, double gamma, double beta) const {
    const double n = double(rows);
    mean_g[c] = float(beta / n);
    slope[c] = float(gamma * double(inverse[c]) / n);
    if (diff_gamma) put(diff_gamma + c, float(gamma), add_gamma);
    if (diff_beta) put(diff_beta + c, float(beta), add_beta);
  }
};

struct FinishGradients {
  Layout l;
  int slabs;
  const float* partial;
  GradientCoefficients slopes;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    reduce_partials(block, l, partial, slabs, [&](std::int64_t c, double sum, double product) {
      slopes(c, product * double(slopes.inverse[c]), sum);
    });
  }
};

struct GradientsFromSums {  // index c is a channel
  const float* sums;
  std::int64_t channels;
  GradientCoefficients slopes;
  MR_DEVICE_INLINE void operator()(std::int64_t c) const { slopes(c, double(sums[c]), double(sums[channels + c])); }
};

template <class T>
struct Sources {
  Raw<T> x, residual;
};

template <class T, bool has_residual>
struct Normalise {
  Layout l;
  T* dst;
  const T *x, *residual;
  const float *gamma, *beta, *mean, *scale;  // scale: 1 / standard deviation, or the variance
  float epsilon;
  bool scale_is_variance, relu;
  std::uint8_t* bits;  // where the ReLU is active; null: not needed

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Place p = place_of(block, l);
    if (p.idle) return;
    float m[pack], factor[pack], b[pack];
    load_channel_values(factor, scale, l, p);
    load_channel_values(m, gamma, l, p);
    for (int i = 0; i < pack; ++i) factor[i] = m[i] * (scale_is_variance ? 1 / sqrtf(factor[i] + epsilon) : factor[i]);
    load_channel_values(m, mean, l, p);
    load_channel_values(b, beta, l, p);
    const auto load = [&](std::int64_t e, int n) {
      Sources<T> in;
      in.x = load_raw(x + e, n);
      if (has_residual) in.residual = load_raw(residual + e, n);
      return in;
    };
    for_each_line<at_once<T, has_residual ? 2 : 1>, false>(l, p, load,
                                                           [&](const Sources<T>& in, std::int64_t e, int n) {
                                                             float y[pack];
                                                             unsigned passed = 0;
                                                             for (int i = 0; i < pack; ++i) {
                                                               y[i] = (widen(in.x.v[i]) - m[i]) * factor[i] + b[i];
                                                               if (has_residual) y[i] += widen(in.residual.v[i]);
                                                               passed |= (y[i] <= 0 ? 0u : 1u) << i;
                                                               y[i] = relu && y[i] < 0 ? 0.0f : y[i];  // keeps NaN
                                                             }
                                                             store_some(dst + e, y, n);
                                                             if (bits) bits[e / pack] = std::uint8_t(passed);
                                                           });
  }
};

template <class T, bool masked>
struct Gradient {
  Layout l;
  T *dx, *dr;  // gradients of src and of the residual; null: not needed
  GradientInputs<T, masked> inputs;
  const float *gamma, *mean, *inverse, *mean_g, *slope;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Place p = place_of(block, l);
    if (p.idle) return;
    // factor * (g - mean_g - (x - mean) * slope) = a * g + b * (x - m) + c. For 16-bit types, m is 0 and c contains
    // b * mean. That saves registers, and loses less precision than the rounding of x to 16 bits.
    constexpr bool centered = sizeof(T) == sizeof(float);
    float a[pack], b[pack], c[pack], m[pack];
    load_channel_values(a, inverse, l, p);
    load_channel_values(m, gamma, l, p);
    for (int i = 0; i < pack; ++i) a[i] *= m[i];
    load_channel_values(m, mean, l, p);
    load_channel_values(b, slope, l, p);
    load_channel_values(c, mean_g, l, p);
    for (int i = 0; i < pack; ++i) {
      c[i] = a[i] * ((centered ? 0.0f : m[i] * b[i]) - c[i]);
      b[i] *= -a[i];
    }
    for_each_line<at_once<T, 2>, false>(l, p, inputs, [&](const Gradients<T>& in, std::int64_t e, int n) {
      float g[pack], d[pack];
      for (int i = 0; i < pack; ++i) {
        g[i] = in.bits >> i & 1 ? widen(in.dy.v[i]) : 0.0f;
        const float x = centered ? widen(in.x.v[i]) - m[i] : widen(in.x.v[i]);
        d[i] = a[i] * g[i] + (b[i] * x + c[i]);
      }
      if (dr) store_some(dr + e, g, n);
      if (dx) store_some(dx + e, d, n);
    });
  }
};

}  // namespace millrace::cuda::batch_norm
