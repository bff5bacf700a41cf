// Linear layer by its definition, in double.
#pragma once
#include <cmath>
#include <vector>

#include "millrace/ops/linear.hpp"

namespace millrace::reference {

inline double activate(Activation kind, double x) {
  switch (kind) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::none:
      break;
  }
  return x;
}

inline double activate_slope(Activation kind, double x) {
  switch (kind) {
    case Activation::relu:
      return x > 0 ? 1 : 0;
    case Activation::gelu:
      return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
    case Activation::tanh:
      return 1 - std::tanh(x) * std::tanh(x);
    case Activation::none:
      break;
  }
  return 1;
}

struct LinearGradients {
  std::vector<double> src, weight, bias;
};

inline std::vector<double> linear_pre(const LinearSpec& s, const std::vector<double>& src,
                                      const std::vector<double>& weight, const std::vector<double>& bias) {
  const std::int64_t rows = s.src[0], in = s.src.row_count(), out = s.out_features;
  std::vector<double> pre(static_cast<std::size_t>(rows * out));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = s.bias ? bias[o] : 0;
      for (std::int64_t i = 0; i < in; ++i) sum += src[r * in + i] * weight[o * in + i];
      pre[r * out + o] = sum;
    }
  return pre;
}

inline std::vector<double> linear_forward(const LinearSpec& s, const std::vector<double>& src,
                                          const std::vector<double>& weight, const std::vector<double>& bias) {
  auto dst = linear_pre(s, src, weight, bias);
  for (double& value : dst) value = activate(s.activation, value);
  return dst;
}

inline LinearGradients linear_backward(const LinearSpec& s, const std::vector<double>& src,
                                       const std::vector<double>& weight, const std::vector<double>& bias,
                                       const std::vector<double>& diff_dst) {
  const std::int64_t rows = s.src[0], in = s.src.row_count(), out = s.out_features;
  const auto pre = linear_pre(s, src, weight, bias);
  LinearGradients g{std::vector<double>(src.size(), 0.0), std::vector<double>(weight.size(), 0.0),
                    std::vector<double>(s.bias ? out : 0, 0.0)};
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      const double diff = diff_dst[r * out + o] * activate_slope(s.activation, pre[r * out + o]);
      if (s.bias) g.bias[o] += diff;
      for (std::int64_t i = 0; i < in; ++i) {
        g.src[r * in + i] += diff * weight[o * in + i];
        g.weight[o * in + i] += diff * src[r * in + i];
      }
    }
  return g;
}

}  // namespace millrace::reference
