// Pointwise operations by their definition, in double.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/base/rng.hpp"
#include "millrace/device/step_state.hpp"
#include "millrace/ops/elementwise.hpp"

namespace millrace::reference {

// tanh(sqrt(2 / pi) (x + 0.044715 x^3)), and its derivative.
inline double tanh_of_cubic(double x) { return std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)); }
inline double tanh_of_cubic_slope(double x) {
  const double t = tanh_of_cubic(x);
  return (1 - t * t) * std::sqrt(2 / std::acos(-1.0)) * (1 + 3 * 0.044715 * x * x);
}

inline double activation(Activation kind, double x) {
  switch (kind) {
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + tanh_of_cubic(x));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::leaky_relu:
      return x < 0 ? double(0.01f) * x : x;
    case Activation::elu:
      return x < 0 ? std::expm1(x) : x;
    case Activation::relu6:
      return std::min(std::max(x, 0.0), 6.0);
    case Activation::hardsigmoid:
      return std::min(std::max(x + 3, 0.0), 6.0) / 6;
    case Activation::hardswish:
      return x * std::min(std::max(x + 3, 0.0), 6.0) / 6;
    case Activation::tanh:
      return std::tanh(x);
    case Activation::none:
      break;
  }
  return x;
}

inline double activation_slope(Activation kind, double x) {
  switch (kind) {
    case Activation::relu:
      return x > 0 ? 1 : 0;
    case Activation::gelu:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
    case Activation::gelu_tanh:
      return 0.5 * (1 + tanh_of_cubic(x)) + 0.5 * x * tanh_of_cubic_slope(x);
    case Activation::silu: {
      const double s = 1 / (1 + std::exp(-x));
      return s + x * s * (1 - s);
    }
    case Activation::sigmoid:
      return std::exp(-x) / ((1 + std::exp(-x)) * (1 + std::exp(-x)));
    case Activation::leaky_relu:
      return x > 0 ? 1 : double(0.01f);
    case Activation::elu:
      return x > 0 ? 1 : std::exp(x);
    case Activation::relu6:
      return x > 0 && x < 6 ? 1 : 0;
    case Activation::hardsigmoid:
      return x > -3 && x < 3 ? 1.0 / 6 : 0;
    case Activation::hardswish:
      return x < -3 ? 0 : x > 3 ? 1 : x / 3 + 0.5;
    case Activation::tanh:
      return 1 - std::tanh(x) * std::tanh(x);
    case Activation::none:
      break;
  }
  return 1;
}

inline double prelu_slope(const PreluSpec& s, const std::vector<double>& slopes, std::size_t i) {
  return s.slopes == 0 ? double(s.slope) : slopes[i % std::size_t(s.slopes)];
}
inline std::vector<double> prelu(const PreluSpec& s, const std::vector<double>& src,
                                 const std::vector<double>& slopes) {
  std::vector<double> dst = src;
  for (std::size_t i = 0; i < dst.size(); ++i)
    if (src[i] <= 0) dst[i] *= prelu_slope(s, slopes, i);
  return dst;
}
struct PreluGradients {
  std::vector<double> src, slopes;
};
inline PreluGradients prelu_gradients(const PreluSpec& s, const std::vector<double>& src,
                                      const std::vector<double>& slopes, const std::vector<double>& diff_dst) {
  PreluGradients out{diff_dst, std::vector<double>(slopes.size(), 0.0)};
  for (std::size_t i = 0; i < src.size(); ++i) {
    if (src[i] > 0) continue;
    out.src[i] *= prelu_slope(s, slopes, i);
    if (s.slopes > 0) out.slopes[i % std::size_t(s.slopes)] += src[i] * diff_dst[i];
  }
  return out;
}

// The factor of each element: 0 or 1 / (1 - probability).
inline std::vector<double> dropout_factors(const DropoutSpec& s, const std::vector<double>& ids,
                                           const StepState& state) {
  std::vector<double> factors;
  for (const double id : ids)
    for (std::int64_t e = 0; e < s.src.row_count(); ++e) {
      const std::int64_t of = s.whole_rows ? 0 : s.whole_channels ? e % s.src[-1] : e;
      const auto draw = std::uint64_t(of / 4);
      const Random4 r = philox(rng_key(s.seed, RngPurpose::dropout) + s.layer, state.rng_step << 32 | draw,
                               std::uint64_t(std::int64_t(id)));
      factors.push_back(uniform01(r.v[of % 4]) >= s.probability ? 1 / (1 - double(s.probability)) : 0);
    }
  return factors;
}

}  // namespace millrace::reference
