// The kernel functors of batch norm, ReLU and max pooling in one: dst = max over the window of max(norm(x), 0).
#pragma once
#include "cuda/kernels/batch_norm_kernels.hpp"
#include "cuda/kernels/merged_norm/norm_values.hpp"
#include "cuda/kernels/pool/pool_kernels.hpp"

namespace millrace::cuda::norm_pool {

using batch_norm::GradientArrays;
using batch_norm::Normaliser;
using batch_norm::NormArrays;
using batch_norm::SourceGradient;
using pool::Geometry;

constexpr std::uint8_t none_passed = 255;  // in place of a tap: all of the window are negative or zero

// Calls body(values, i) for the packs i of an image group. A thread handles packs of the same channels, so that it
// loads the values of these channels only once, by body.values(i).
template <class Body>
struct EachOfChannels {
  unsigned count, threads;  // threads: of a block, that have work
  Body body;
  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    unsigned i = unsigned(block.index()) * threads + unsigned(block.thread());
    if (unsigned(block.thread()) >= threads || i >= count) return;
    const auto values = body.values(int(i));
    const unsigned step = unsigned(block.blocks()) * threads;  // a multiple of the packs of a pixel
    MR_NO_UNROLL for (; i < count; i += step) body(values, int(i));
  }
};

// Copies the values of n channels from the first on.
struct LoadChannels {
  int first;
  template <int n>
  MR_DEVICE_INLINE void operator()(float (&to)[n], const float* from) const {
    for (int k = 0; k < n; ++k) to[k] = from[first + k];
  }
};

// A thread handles a pack of channels of a result. It normalises each pixel of the window. Where windows overlap, a
// pixel is loaded and normalised by each of them; the loads find it in the caches, and a fused multiply-add for each
// value is little beside the comparisons.
template <class T, int n>
struct NormaliseMax {
  static constexpr int blocks = 3;
  Geometry g;
  T* dst;
  const T* x;
  NormArrays norm;
  std::uint8_t* taps;  // where the maximum is, or none_passed; null: not needed
  T* maxima;           // the maximum in x; only with taps

  MR_DEVICE_INLINE Normaliser<T, n> values(int i) const {
    return {norm, LoadChannels{pool::place_of(i, g, g.by_out).pack * n}};
  }

  MR_DEVICE_INLINE void operator()(const Normaliser<T, n>& values, int i) const {
    const pool::Place p = pool::place_of(i, g, g.by_out);
    float source[n] = {};  // the best is computed from it again, because there are no registers to keep it
    int tap_of[n] = {}, first = 0;
    const auto y = [&](int k, float x) { return values.scaled(x, k) + values.b[k]; };
    const bool any = pool::walk_window<n>(
        g, p, x, [&](int tap) { first = tap; },
        [&](const Pack<T, n>& raw, int tap) {
          for (int k = 0; k < n; ++k) {
            const float v = widen(raw.v[k]), best = y(k, source[k]);
            const bool take = tap == first || (!(y(k, v) <= best) && best == best);  // as in MaxForward
            source[k] = take ? v : source[k];
            tap_of[k] = take ? tap : tap_of[k];
          }
        });
    Pack<std::uint8_t, n> packed;
    float result[n];
    for (int k = 0; k < n; ++k) {
      const float best = any ? y(k, source[k]) : 0.0f;  // a window of padding only
      packed.v[k] = best <= 0 ? none_passed : std::uint8_t(tap_of[k]);
      result[k] = best < 0 ? 0.0f : best;  // keeps NaN
    }
    const std::int64_t to = g.out_at(p.image, p.z, p.y, p.x) + p.pack * n;
    store(dst + to, result);
    if (!taps) return;
    store(maxima + to, source);
    *reinterpret_cast<Pack<std::uint8_t, n>*>(taps + to) = packed;
  }
};

template <class T>
struct PooledGradients {
  batch_norm::Raw<T> dy, x;
  batch_norm::Raw<std::uint8_t> taps;
};

// Sums of g and of g * (x - mean) over all pixels, and what follows from them, where g is the gradient of a pixel
// before the ReLU. It is the sum over the results, because each gradient of a result goes to one pixel: its maximum. So
// this reads three small tensors.
template <class T>
struct PooledGradientSums {
  batch_norm::Layout l;  // of the results
  const T *dy, *maxima;
  const std::uint8_t* taps;
  const float* mean;
  batch_norm::SumTree tree;
  batch_norm::GradientCoefficients coefficients;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    constexpr int pack = batch_norm::pack;
    const batch_norm::Place p = batch_norm::place_of(block, l);
    float sum[pack] = {}, product[pack] = {};
    if (!p.idle) {
      float m[pack];
      batch_norm::load_channel_values(m, mean, l, p);
      const auto load = [&](std::int64_t e, int n) {
        return PooledGradients<T>{batch_norm::load_raw(dy + e, n), batch_norm::load_raw(maxima + e, n),
                                  batch_norm::load_raw(taps + e, n)};
      };
      batch_norm::for_each_line<batch_norm::at_once<T, 2>, true>(
          l, p, load, [&](const PooledGradients<T>& in, std::int64_t, int n) {
            for (int i = 0; i < pack; ++i) {
              if (i >= n) continue;
              const float g = in.taps.v[i] == none_passed ? 0.0f : widen(in.dy.v[i]);
              sum[i] += g;
              product[i] += g * (widen(in.x.v[i]) - m[i]);
            }
          });
    }
    reduce_block(block, l, p, tree.partial, sum, product);
    add_up(block, l, p, tree,
           [&](std::int64_t c, const double(&totals)[2]) { coefficients.of_sums(c, totals[0], totals[1]); });
  }
};

// A thread handles a pack of channels of a pixel. It gathers the gradient of the pixel from the windows that contain
// it, as the backward pass of a pool does.
template <class T, int n>
struct PooledGradient {
  static constexpr int blocks = 3;
  Geometry g;
  T* dx;
  const T *x, *dy;
  const std::uint8_t* taps;
  GradientArrays norm;

  MR_DEVICE_INLINE SourceGradient<T, n> values(int i) const {
    return {norm, LoadChannels{pool::place_of(i, g, g.by_in).pack * n}};
  }

  MR_DEVICE_INLINE void operator()(const SourceGradient<T, n>& values, int i) const {
    const pool::Place p = pool::place_of(i, g, g.by_in);
    const std::int64_t at = g.in_at(p.image, p.z, p.y, p.x) + p.pack * n;
    const Pack<T, n> raw = *reinterpret_cast<const Pack<T, n>*>(x + at);
    float d[n] = {};
    pool::gather_max(d, g, p, dy, taps);
    for (int k = 0; k < n; ++k) d[k] = values(d[k], widen(raw.v[k]), k);
    store(dx + at, d);
  }
};

}  // namespace millrace::cuda::norm_pool
