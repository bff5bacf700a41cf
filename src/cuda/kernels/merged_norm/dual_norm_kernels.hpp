// The kernel functors of a batch norm whose residual has a norm of its own: dst = act(norm(x[0]) + norm2(x[1])).
//
// A thread needs more registers than those of batch norm, because it holds the values of two norms. So fewer blocks are
// resident, and each thread has more bytes in flight.
#pragma once
#include "cuda/kernels/batch_norm_kernels.hpp"
#include "cuda/kernels/merged_norm/norm_values.hpp"

namespace millrace::cuda::dual_norm {

using namespace batch_norm;

// Resident blocks for each multiprocessor.
constexpr int normalise_blocks = 3, sums_blocks = 3, gradient_blocks = 2;
constexpr int gradient_sums = 3;  // of a channel: of the gradient, and of its product with each source

template <class T>
struct BothSources {
  Raw<T> x[2];
};

template <class T>
struct NormaliseBoth {
  Layout l;
  T* dst;
  const T* x[2];
  NormArrays norm[2];
  bool relu;
  std::uint8_t* bits;  // where the ReLU is active; null: not needed

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Place p = place_of(block, l);
    if (p.idle) return;
    const auto load_values = [&](float(&to)[pack], const float* from) { load_channel_values(to, from, l, p); };
    const Normaliser<T, pack> first(norm[0], load_values), second(norm[1], load_values);
    float b[pack];
    for (int i = 0; i < pack; ++i) b[i] = first.b[i] + second.b[i];
    const auto load = [&](std::int64_t e, int n) {
      return BothSources<T>{{load_raw(x[0] + e, n), load_raw(x[1] + e, n)}};
    };
    for_each_line<at_once<T, 2>, false>(l, p, load, [&](const BothSources<T>& in, std::int64_t e, int n) {
      float y[pack];
      unsigned passed = 0;
      for (int i = 0; i < pack; ++i) {
        y[i] = first.scaled(widen(in.x[0].v[i]), i) + second.scaled(widen(in.x[1].v[i]), i) + b[i];
        passed |= (y[i] <= 0 ? 0u : 1u) << i;
        y[i] = relu && y[i] < 0 ? 0.0f : y[i];  // keeps NaN
      }
      store_some(dst + e, y, n);
      if (bits) bits[e / pack] = std::uint8_t(passed);
    });
  }
};

template <class T>
struct BothGradients {
  Raw<T> dy, x[2];
  unsigned bits;
  MR_DEVICE_INLINE float g(int i) const { return bits >> i & 1 ? widen(dy.v[i]) : 0.0f; }
};

template <class T, bool masked>
struct BothInputs {
  const T *dy, *x[2];
  const std::uint8_t* bits;
  MR_DEVICE_INLINE BothGradients<T> operator()(std::int64_t e, int n) const {
    return {load_raw(dy + e, n), {load_raw(x[0] + e, n), load_raw(x[1] + e, n)}, masked ? bits[e / pack] : 0xffu};
  }
};

// Sums of g, of g * (x[0] - mean[0]) and of g * (x[1] - mean[1]), and what follows from them for both norms. As in
// GradientSums, g is the gradient behind the ReLU.
template <class T, bool masked>
struct BothGradientSums {
  Layout l;
  BothInputs<T, masked> inputs;
  const float* mean[2];
  SumTree tree;
  GradientCoefficients coefficients[2];

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Place p = place_of(block, l);
    float sum[pack] = {}, product[2][pack] = {};
    if (!p.idle) {
      float m[2][pack];
      for (int k = 0; k < 2; ++k) load_channel_values(m[k], mean[k], l, p);
      for_each_line<at_once<T, 3>, true>(l, p, inputs, [&](const BothGradients<T>& in, std::int64_t, int n) {
        for (int i = 0; i < pack; ++i) {
          if (i >= n) continue;
          const float g = in.g(i);
          sum[i] += g;
          for (int k = 0; k < 2; ++k) product[k][i] += g * (widen(in.x[k].v[i]) - m[k][i]);
        }
      });
    }
    reduce_block(block, l, p, tree.partial, sum, product[0], product[1]);
    add_up<gradient_sums>(block, l, p, tree, [&](std::int64_t c, const double(&totals)[gradient_sums]) {
      for (int k = 0; k < 2; ++k) coefficients[k].of_sums(c, totals[0], totals[1 + k]);
    });
  }
};

template <class T, bool masked>
struct GradientOfBoth {
  Layout l;
  T* dx[2];  // null: not needed
  BothInputs<T, masked> inputs;
  GradientArrays norm[2];

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Place p = place_of(block, l);
    if (p.idle) return;
    const auto load_values = [&](float(&to)[pack], const float* from) { load_channel_values(to, from, l, p); };
    const SourceGradient<T, pack> first(norm[0], load_values), second(norm[1], load_values);
    for_each_line<centered<T> ? 1 : 2, false>(l, p, inputs, [&](const BothGradients<T>& in, std::int64_t e, int n) {
      const auto write = [&](T* to, const SourceGradient<T, pack>& gradient, const Raw<T>& x) {
        float d[pack];
        for (int i = 0; i < pack; ++i) d[i] = gradient(in.g(i), widen(x.v[i]), i);
        store_some(to + e, d, n);
      };
      if (dx[0]) write(dx[0], first, in.x[0]);
      if (dx[1]) write(dx[1], second, in.x[1]);
    });
  }
};

}  // namespace millrace::cuda::dual_norm
