// The values of a norm that a thread holds for its n channels: what becomes of an element of the source, and of its
// gradient. `load(to, from)` copies the values of these channels from an array with one value for each channel.
#pragma once
#include <cmath>

#include "cuda/block/half.hpp"

namespace millrace::cuda::batch_norm {

// For 16-bit types, the mean is part of the constant term, as in the kernel Gradient. That saves registers, and loses
// less precision than the rounding of the source to 16 bits.
template <class T>
constexpr bool centered = sizeof(T) == sizeof(float);

struct NormArrays {
  const float *gamma, *beta, *mean, *scale;  // scale: 1 / standard deviation, or the variance
  float epsilon;
  bool scale_is_variance;
};

template <class T, int n>
struct Normaliser {  // norm(x) = scaled(x) + b
  float factor[n], m[n], b[n];
  template <class Load>
  MR_DEVICE_INLINE Normaliser(const NormArrays& of, const Load& load) {
    load(factor, of.scale);
    load(m, of.gamma);
    for (int i = 0; i < n; ++i)
      factor[i] = m[i] * (of.scale_is_variance ? 1 / sqrtf(factor[i] + of.epsilon) : factor[i]);
    load(m, of.mean);
    load(b, of.beta);
    for (int i = 0; i < n; ++i) b[i] -= centered<T> ? 0.0f : factor[i] * m[i];
  }
  MR_DEVICE_INLINE float scaled(float x, int i) const { return factor[i] * (centered<T> ? x - m[i] : x); }
};

struct GradientArrays {
  const float *gamma, *mean, *inverse, *mean_g, *slope;
};

template <class T, int n>
struct SourceGradient {  // gamma * inverse * (g - mean_g - (x - mean) * slope) = a * g + (b * (x - m) + c)
  float a[n], b[n], c[n], m[n];
  template <class Load>
  MR_DEVICE_INLINE SourceGradient(const GradientArrays& of, const Load& load) {
    load(a, of.inverse);
    load(m, of.gamma);
    for (int i = 0; i < n; ++i) a[i] *= m[i];
    load(m, of.mean);
    load(b, of.slope);
    load(c, of.mean_g);
    for (int i = 0; i < n; ++i) {
      c[i] = a[i] * ((centered<T> ? 0.0f : m[i] * b[i]) - c[i]);
      b[i] *= -a[i];
    }
  }
  MR_DEVICE_INLINE float operator()(float g, float x, int i) const {
    return a[i] * g + (b[i] * (centered<T> ? x - m[i] : x) + c[i]);
  }
};

}  // namespace millrace::cuda::batch_norm
