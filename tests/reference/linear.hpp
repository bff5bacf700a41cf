// Linear layer by its definition, in double.
#pragma once
#include <vector>

#include "millrace/ops/linear.hpp"
#include "reference/elementwise.hpp"

namespace millrace::reference {

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
  for (double& value : dst) value = activation(s.activation, value);
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
      const double diff = diff_dst[r * out + o] * activation_slope(s.activation, pre[r * out + o]);
      if (s.bias) g.bias[o] += diff;
      for (std::int64_t i = 0; i < in; ++i) {
        g.src[r * in + i] += diff * weight[o * in + i];
        g.weight[o * in + i] += diff * src[r * in + i];
      }
    }
  return g;
}

}  // namespace millrace::reference
