#include "cpu/norm/batch_norm_kernels.hpp"

namespace millrace::cpu::batch_norm {

// Processes four rows at a time, which reads the sums less often and reduces their rounding error.
MR_TARGET_CLONES void sums(const Block& b, Lines x, const float* __restrict shift, float* __restrict sum,
                           float* __restrict square) {
  std::fill_n(sum, b.width, 0.0f);
  std::fill_n(square, b.width, 0.0f);
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
      sum[i] += d;
      square[i] += d * d;
    }
  }
}

namespace {

#define MR_INLINE __attribute__((always_inline)) inline

template <bool masked>
MR_INLINE float passed(float g, std::uint32_t bits, std::int64_t row) {
  return !masked || (bits & (1u << row)) ? g : 0.0f;
}

template <bool masked>
MR_INLINE void gradient_sums_of(const Block& b, Lines dy, Lines x, const std::uint32_t* __restrict bits,
                                const float* __restrict mean, float* __restrict sum, float* __restrict product) {
  std::fill_n(sum, b.width, 0.0f);
  std::fill_n(product, b.width, 0.0f);
  std::int64_t row = 0;
  for (; row + 4 <= b.rows; row += 4) {
    const float *x0 = x.data + row * x.stride, *x1 = x0 + x.stride, *x2 = x1 + x.stride, *x3 = x2 + x.stride;
    const float *y0 = dy.data + row * dy.stride, *y1 = y0 + dy.stride, *y2 = y1 + dy.stride, *y3 = y2 + dy.stride;
    for (std::int64_t i = 0; i < b.width; ++i) {
      const std::uint32_t w = masked ? bits[i] >> row : 0;
      const float m = mean[i];
      const float g0 = passed<masked>(y0[i], w, 0), g1 = passed<masked>(y1[i], w, 1);
      const float g2 = passed<masked>(y2[i], w, 2), g3 = passed<masked>(y3[i], w, 3);
      sum[i] += (g0 + g1) + (g2 + g3);
      product[i] += (g0 * (x0[i] - m) + g1 * (x1[i] - m)) + (g2 * (x2[i] - m) + g3 * (x3[i] - m));
    }
  }
  for (; row <= b.rows; ++row) {
    const float *x0 = x.data + row * x.stride, *y0 = dy.data + row * dy.stride;
    const std::int64_t n = row < b.rows ? b.width : b.tail;
    for (std::int64_t i = 0; i < n; ++i) {
      const float g = passed<masked>(y0[i], masked ? bits[i] : 0, row);
      sum[i] += g;
      product[i] += g * (x0[i] - mean[i]);
    }
  }
}

// Comparisons let a NaN pass.
template <Activation act>
MR_INLINE float activated(float v) {
  if (act == Activation::none) return v;
  const float below = act == Activation::relu6 && v > 6 ? 6.0f : v;
  return below < 0 ? 0.0f : below;
}
template <Activation act>
MR_INLINE std::uint32_t bit_if_passed(float v, std::uint32_t bit) {
  const std::uint32_t above = v <= 0 ? 0u : bit, below = act == Activation::relu6 && v >= 6 ? 0u : bit;
  return above & below;
}

template <bool has_residual, Activation act, bool keep>
MR_INLINE void normalise_of(const Block& b, Target y, Lines x, Lines residual, std::uint32_t* __restrict bits,
                            const NormParameters& parameters) {
  const float* __restrict mean = parameters.mean;
  const float* __restrict factor = parameters.factor;
  const float* __restrict beta = parameters.beta;
  if (keep) std::fill_n(bits, b.width, 0u);
  for (std::int64_t row = 0; row <= b.rows; ++row) {
    float* __restrict out = y.data + row * y.stride;
    const float* __restrict in = x.data + row * x.stride;
    const float* __restrict r = has_residual ? residual.data + row * residual.stride : in;
    const std::int64_t n = row < b.rows ? b.width : b.tail;
    const std::uint32_t bit = 1u << (row & 31);
    for (std::int64_t i = 0; i < n; ++i) {
      float v = (in[i] - mean[i]) * factor[i] + beta[i];
      if (has_residual) v += r[i];
      if (keep) bits[i] |= bit_if_passed<act>(v, bit);
      out[i] = activated<act>(v);
    }
  }
}

template <bool has_residual, Activation act>
MR_INLINE void normalise_and(const Block& b, Target y, Lines x, Lines residual, std::uint32_t* bits,
                             const NormParameters& parameters) {
  bits ? normalise_of<has_residual, act, true>(b, y, x, residual, bits, parameters)
       : normalise_of<has_residual, act, false>(b, y, x, residual, bits, parameters);
}

template <bool has_residual>
MR_INLINE void normalise_with(const Block& b, Target y, Lines x, Lines residual, std::uint32_t* bits, Activation act,
                              const NormParameters& parameters) {
  if (act == Activation::none)
    normalise_of<has_residual, Activation::none, false>(b, y, x, residual, bits, parameters);
  else if (act == Activation::relu)
    normalise_and<has_residual, Activation::relu>(b, y, x, residual, bits, parameters);
  else
    normalise_and<has_residual, Activation::relu6>(b, y, x, residual, bits, parameters);
}

template <bool masked, bool has_residual>
MR_INLINE void gradient_of(const Block& b, const GradientOperands& operands, const std::uint32_t* __restrict bits,
                           const float* __restrict mean, const float* __restrict factor, const float* __restrict mean_g,
                           const float* __restrict slope) {
  const auto [dx, residual, dy, x] = operands;
  for (std::int64_t row = 0; row <= b.rows; ++row) {
    float* __restrict out = dx.data + row * dx.stride;
    float* __restrict out_r = has_residual ? residual.data + row * residual.stride : nullptr;
    const float* __restrict y = dy.data + row * dy.stride, * __restrict in = x.data + row * x.stride;
    const std::int64_t n = row < b.rows ? b.width : b.tail;
    for (std::int64_t i = 0; i < n; ++i) {
      const float g = passed<masked>(y[i], masked ? bits[i] : 0, row & 31);
      if (has_residual) out_r[i] = g;
      out[i] = factor[i] * (g - mean_g[i] - (in[i] - mean[i]) * slope[i]);
    }
  }
}

}  // namespace

MR_TARGET_CLONES void gradient_sums(const Block& b, Lines dy, Lines x, const std::uint32_t* bits, const float* mean,
                                    float* sum, float* product) {
  bits ? gradient_sums_of<true>(b, dy, x, bits, mean, sum, product)
       : gradient_sums_of<false>(b, dy, x, bits, mean, sum, product);
}

MR_TARGET_CLONES void passed_gradient(const Block& b, Target g, Lines x, const std::uint32_t* __restrict bits,
                                      const float* __restrict mean, float* __restrict sum, float* __restrict product) {
  std::fill_n(sum, b.width, 0.0f);
  std::fill_n(product, b.width, 0.0f);
  for (std::int64_t row = 0; row <= b.rows; ++row) {
    float* __restrict to = g.data + row * g.stride;
    const float* __restrict in = x.data + row * x.stride;
    const std::int64_t n = row < b.rows ? b.width : b.tail;
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = passed<true>(to[i], bits[i], row & 31);
      sum[i] += to[i];
      product[i] += to[i] * (in[i] - mean[i]);
    }
  }
}

MR_TARGET_CLONES void normalise(const Block& b, Target y, Lines x, Lines residual, std::uint32_t* bits, Activation act,
                                const NormParameters& parameters) {
  residual.data ? normalise_with<true>(b, y, x, residual, bits, act, parameters)
                : normalise_with<false>(b, y, x, residual, bits, act, parameters);
}

MR_TARGET_CLONES void gradient(const Block& b, const GradientOperands& operands, const std::uint32_t* bits,
                               const float* mean, const float* factor, const float* mean_g, const float* slope) {
  if (operands.residual.data)
    bits ? gradient_of<true, true>(b, operands, bits, mean, factor, mean_g, slope)
         : gradient_of<false, true>(b, operands, bits, mean, factor, mean_g, slope);
  else
    bits ? gradient_of<true, false>(b, operands, bits, mean, factor, mean_g, slope)
         : gradient_of<false, false>(b, operands, bits, mean, factor, mean_g, slope);
}

}  // namespace millrace::cpu::batch_norm
