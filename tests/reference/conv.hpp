// Convolution by its definition, in double.
#pragma once
#include <array>
#include <vector>

#include "millrace/ops/transposed_conv.hpp"

namespace millrace::reference {

struct ConvGradients {
  std::vector<double> src, weight, bias;
};

// Compiled with -O3, because the tests have -Og and spend much of their time here. An inlined copy would have -Og, too.
#define MILLRACE_QUICK [[gnu::noinline, gnu::optimize("O3")]]
MILLRACE_QUICK inline double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}
MILLRACE_QUICK inline void add_times(double* to, double factor, const double* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}
#undef MILLRACE_QUICK

// Calls visit(dst, src, weight, count) for rows of products. Element src + c of the source times element weight + c of
// the weight is a term of element dst of the result, for each c below count.
template <class Visit>
void each_row_of_products(const ConvSpec& s, const Visit& visit) {
  const Shape out = s.dst();
  const Window& w = s.window;
  const std::int64_t channels = s.src[-1], group_in = channels / s.groups, group_out = s.out_channels / s.groups;
  std::array<std::int64_t, 3> in{1, 1, 1}, o{1, 1, 1};
  for (int a = 0; a < w.rank; ++a) {
    in[a] = s.src[1 + a];
    o[a] = out[1 + a];
  }
  std::array<std::int64_t, 3> y{}, t{}, x{};
  for (std::int64_t n = 0; n < s.src[0]; ++n)
    for (y[0] = 0; y[0] < o[0]; ++y[0])
      for (y[1] = 0; y[1] < o[1]; ++y[1])
        for (y[2] = 0; y[2] < o[2]; ++y[2])
          for (t[0] = 0; t[0] < w.kernel[0]; ++t[0])
            for (t[1] = 0; t[1] < w.kernel[1]; ++t[1])
              for (t[2] = 0; t[2] < w.kernel[2]; ++t[2]) {
                bool inside = true;
                for (int a = 0; a < 3; ++a) {
                  x[a] = y[a] * w.stride[a] - w.pad[a] + t[a] * w.dilation[a];
                  inside = inside && x[a] >= 0 && x[a] < in[a];
                }
                if (!inside) continue;
                const std::int64_t dst = ((n * o[0] + y[0]) * o[1] + y[1]) * o[2] + y[2];
                const std::int64_t src = ((n * in[0] + x[0]) * in[1] + x[1]) * in[2] + x[2];
                const std::int64_t tap = (t[0] * w.kernel[1] + t[1]) * w.kernel[2] + t[2];
                const std::int64_t taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
                for (std::int64_t k = 0; k < s.out_channels; ++k)
                  visit(dst * s.out_channels + k, src * channels + k / group_out * group_in,
                        (k * taps + tap) * group_in, group_in);
              }
}

inline std::vector<double> conv_forward(const ConvSpec& s, const std::vector<double>& src,
                                        const std::vector<double>& weight, const std::vector<double>& bias) {
  std::vector<double> dst(static_cast<std::size_t>(s.dst().count()), 0.0);
  each_row_of_products(s, [&](auto d, auto i, auto w, auto n) { dst[d] += dot(&src[i], &weight[w], n); });
  for (std::size_t i = 0; s.bias && i < dst.size(); ++i) dst[i] += bias[i % s.out_channels];
  return dst;
}

inline ConvGradients conv_backward(const ConvSpec& s, const std::vector<double>& src, const std::vector<double>& weight,
                                   const std::vector<double>& diff_dst) {
  ConvGradients g{std::vector<double>(src.size(), 0.0), std::vector<double>(weight.size(), 0.0),
                  std::vector<double>(s.bias ? s.out_channels : 0, 0.0)};
  each_row_of_products(s, [&](auto d, auto i, auto w, auto n) {
    add_times(&g.src[i], diff_dst[d], &weight[w], n);
    add_times(&g.weight[w], diff_dst[d], &src[i], n);
  });
  for (std::size_t i = 0; s.bias && i < diff_dst.size(); ++i) g.bias[i % s.out_channels] += diff_dst[i];
  return g;
}

// A transposed convolution adds each product to the result that the other convolution would read.
inline std::vector<double> transposed_conv_forward(const TransposedConvSpec& s, const std::vector<double>& src,
                                                   const std::vector<double>& weight, const std::vector<double>& bias) {
  std::vector<double> dst(static_cast<std::size_t>(s.dst().count()), 0.0);
  each_row_of_products(s.conv(),
                       [&](auto from, auto to, auto w, auto n) { add_times(&dst[to], src[from], &weight[w], n); });
  for (std::size_t i = 0; s.bias && i < dst.size(); ++i) dst[i] += bias[i % s.out_channels];
  return dst;
}

inline ConvGradients transposed_conv_backward(const TransposedConvSpec& s, const std::vector<double>& src,
                                              const std::vector<double>& weight, const std::vector<double>& diff_dst) {
  ConvGradients g{std::vector<double>(src.size(), 0.0), std::vector<double>(weight.size(), 0.0),
                  std::vector<double>(s.bias ? s.out_channels : 0, 0.0)};
  each_row_of_products(s.conv(), [&](auto from, auto to, auto w, auto n) {
    g.src[from] += dot(&diff_dst[to], &weight[w], n);
    add_times(&g.weight[w], src[from], &diff_dst[to], n);
  });
  for (std::size_t i = 0; s.bias && i < diff_dst.size(); ++i) g.bias[i % s.out_channels] += diff_dst[i];
  return g;
}

}  // namespace millrace::reference
