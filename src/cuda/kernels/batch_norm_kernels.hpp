// The kernel functors of batch norm. They work on the lines that batch_norm_tiling.hpp defines.
#pragma once
#include <cmath>

#include "cuda/kernels/batch_norm_sums.hpp"

namespace millrace::cuda::batch_norm {

// Sums of x - shift and of its square, for each channel, and what follows from them. The shift is the mean of four rows
// spread over the tensor. It keeps the sums small, so that little precision is lost when the square of the mean is
// subtracted.
template <class T>
struct Statistics {
  Layout l;
  const T* x;
  float* shift;
  SumTree tree;
  Moments moments;

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
    sum_up<at_once<T, 1>, true>(block, [](const Raw<T>&) {});
  }

  // Calls keep(raw) for each pack of the thread. Returns what add_up() returns.
  template <int lines, bool descending, class Block, class Keep>
  MR_DEVICE_INLINE bool sum_up(Block& block, const Keep& keep) const {
    const Place p = place_of(block, l);
    float sum[pack] = {}, square[pack] = {};
    if (!p.idle) {
      float s[pack];
      pick(s, p);
      if (p.first == 0 && p.lane == 0)
        for (int i = 0; i < pack; ++i)
          if (p.column + i < l.channels) shift[p.column + i] = s[i];
      for_each_line<lines, descending>(
          l, p, [&](std::int64_t e, int n) { return load_raw(x + e, n); },
          [&](const Raw<T>& raw, std::int64_t, int n) {
            keep(raw);
            for (int i = 0; i < pack; ++i) {
              if (i >= n) continue;
              const float d = widen(raw.v[i]) - s[i];
              sum[i] += d;
              square[i] += d * d;
            }
          });
    }
    reduce_block(block, l, p, tree.partial, sum, square);
    return add_up(block, l, p, tree, [&](std::int64_t c, const double(&totals)[2]) {
      moments(c, double(shift[c]), totals[0], totals[1]);
    });
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

// Sums of g and of g * (x - mean), and what follows from them, where g is the gradient behind the ReLU: diff_dst where
// the ReLU was active, otherwise 0.
template <class T, bool masked>
struct GradientSums {
  Layout l;
  GradientInputs<T, masked> inputs;
  const float* mean;
  SumTree tree;
  GradientCoefficients coefficients;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    sum_up<true>(block, [](const Gradients<T>&) {});
  }

  // As in Statistics.
  template <bool descending, class Block, class Keep>
  MR_DEVICE_INLINE bool sum_up(Block& block, const Keep& keep) const {
    const Place p = place_of(block, l);
    float sum[pack] = {}, product[pack] = {};
    if (!p.idle) {
      float m[pack];
      load_channel_values(m, mean, l, p);
      for_each_line<at_once<T, 2>, descending>(l, p, inputs, [&](const Gradients<T>& in, std::int64_t, int n) {
        keep(in);
        for (int i = 0; i < pack; ++i) {
          if (i >= n) continue;
          const float g = in.bits >> i & 1 ? widen(in.dy.v[i]) : 0.0f;
          sum[i] += g;
          product[i] += g * (widen(in.x.v[i]) - m[i]);
        }
      });
    }
    reduce_block(block, l, p, tree.partial, sum, product);
    return add_up(block, l, p, tree,
                  [&](std::int64_t c, const double(&totals)[2]) { coefficients.of_sums(c, totals[0], totals[1]); });
  }
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
    write(block, [&](std::int64_t e, int n) { return load_raw(x + e, n); });
  }

  // load_x(e, n): n elements of x from e on.
  template <class Block, class Load>
  MR_DEVICE_INLINE void write(const Block& block, const Load& load_x) const {
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
      in.x = load_x(e, n);
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
    write(block, inputs);
  }

  template <class Block, class Load>
  MR_DEVICE_INLINE void write(const Block& block, const Load& load) const {
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
    for_each_line<at_once<T, 2>, false>(l, p, load, [&](const Gradients<T>& in, std::int64_t e, int n) {
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
