#include "batch_norm_kernels.hpp"

namespace millrace::cpu::batch_norm {

// Four rows at a time: fewer passes over the sums, and less rounding in them.
MR_SIMD void sums(const Block& b, Lines x, const float* __restrict shift, float* __restrict sum,
                  float* __restrict square) {
  std::fill_n(sum, b.width, 0.0f), std::fill_n(square, b.width, 0.0f);
  std::int64_t row = 0;
  for (; row + 4 <= b.rows; row += 4) {
    const float* __restrict x0 = x.data + row * x.stride;
    const float *x1 = x0 + x.stride, *x2 = x1 + x.stride, *x3 = x2 + x.stride;
    for (std::int64_t i = 0; i < b.width; ++i) {
      const float d0 = x0[i] - shift[i], d1 = x1[i] - shift[i], d2 = x2[i] - shift[i], d3 = x3[i] - shift[i];
      sum[i] += (d0 + d1) + (d2 + d3);
      square[i] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  }
  for (; row <= b.rows; ++row) {
    const float* __restrict x0 = x.data + row * x.stride;
    const std::int64_t n = row < b.rows ? b.width : b.tail;
    for (std::int64_t i = 0; i < n; ++i) {
      const float d = x0[i] - shift[i];
      sum[i] += d, square[i] += d * d;
    }
  }
}

MR_SIMD void gradient_sums(const Block& b, Lines g, Lines x, const float* __restrict mean, float* __restrict sum,
                           float* __restrict product) {
  std::fill_n(sum, b.width, 0.0f), std::fill_n(product, b.width, 0.0f);
  std::int64_t row = 0;
  for (; row + 4 <= b.rows; row += 4) {
    const float *x0 = x.data + row * x.stride, *x1 = x0 + x.stride, *x2 = x1 + x.stride, *x3 = x2 + x.stride;
    const float *g0 = g.data + row * g.stride, *g1 = g0 + g.stride, *g2 = g1 + g.stride, *g3 = g2 + g.stride;
    for (std::int64_t i = 0; i < b.width; ++i) {
      const float m = mean[i];
      sum[i] += (g0[i] + g1[i]) + (g2[i] + g3[i]);
      product[i] += (g0[i] * (x0[i] - m) + g1[i] * (x1[i] - m)) + (g2[i] * (x2[i] - m) + g3[i] * (x3[i] - m));
    }
  }
  for (; row <= b.rows; ++row) {
    const float *x0 = x.data + row * x.stride, *g0 = g.data + row * g.stride;
    const std::int64_t n = row < b.rows ? b.width : b.tail;
    for (std::int64_t i = 0; i < n; ++i) sum[i] += g0[i], product[i] += g0[i] * (x0[i] - mean[i]);
  }
}

namespace {
template <bool has_residual, bool relu>
__attribute__((always_inline)) inline void normalise_lines(const Block& b, float* y, std::int64_t y_stride, Lines x,
                                                           Lines residual, const float* mean, const float* factor,
                                                           const float* beta) {
  for (std::int64_t row = 0; row <= b.rows; ++row) {
    float* __restrict out = y + row * y_stride;
    const float* __restrict in = x.data + row * x.stride, * __restrict m = mean, * __restrict f = factor, * __restrict t = beta;
    const float* __restrict r = has_residual ? residual.data + row * residual.stride : in;
    const std::int64_t n = row < b.rows ? b.width : b.tail;
    for (std::int64_t i = 0; i < n; ++i) {
      float v = (in[i] - m[i]) * f[i] + t[i];
      if (has_residual) v += r[i];
      out[i] = relu && v < 0 ? 0 : v;  // a NaN stays
    }
  }
}
}  // namespace

MR_SIMD void normalise(const Block& b, float* y, std::int64_t y_stride, Lines x, Lines residual, const float* mean,
                       const float* factor, const float* beta, bool relu) {
  if (residual.data && relu)
    normalise_lines<true, true>(b, y, y_stride, x, residual, mean, factor, beta);
  else if (residual.data)
    normalise_lines<true, false>(b, y, y_stride, x, residual, mean, factor, beta);
  else if (relu)
    normalise_lines<false, true>(b, y, y_stride, x, residual, mean, factor, beta);
  else
    normalise_lines<false, false>(b, y, y_stride, x, residual, mean, factor, beta);
}

MR_SIMD void gradient(const Block& b, float* dx, std::int64_t dx_stride, Lines g, Lines x, const float* mean,
                      const float* factor, const float* mean_g, const float* slope) {
  for (std::int64_t row = 0; row <= b.rows; ++row) {
    float* __restrict out = dx + row * dx_stride;
    const float* __restrict gr = g.data + row * g.stride, * __restrict in = x.data + row * x.stride;
    const float* __restrict m = mean, * __restrict f = factor, * __restrict mg = mean_g, * __restrict s = slope;
    const std::int64_t n = row < b.rows ? b.width : b.tail;
    for (std::int64_t i = 0; i < n; ++i) out[i] = f[i] * (gr[i] - mg[i] - (in[i] - m[i]) * s[i]);
  }
}

}  // namespace millrace::cpu::batch_norm
