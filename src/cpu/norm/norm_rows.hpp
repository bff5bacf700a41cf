// The arithmetic of batch norm on some rows of a channels-last tensor, on the calling thread. Tensors have the extents
// (..., channels) and the same number of rows. Values per channel are float32, or double for sums.
#pragma once
#include "cpu/norm/batch_norm_tiles.hpp"

namespace millrace::cpu::batch_norm {

// Rows [row, row + rows) of a tensor, as (rows, channels). Null if the tensor is null.
Tensor rows_of(const Tensor&, std::int64_t row, std::int64_t rows);
// to += more.
void add_rows(const Tensor& to, const Tensor& more);

// One value per channel in each array. norm(x) = (x - mean) * inverse * gamma + beta, then the activation.
struct ChannelNorm {
  const float *mean, *inverse, *gamma, *beta;
  Activation activation;
};

// The gradient of a norm: dx = factor * (g - mean_g - (x - mean) * slope), where factor = gamma * inverse, mean_g is
// the mean of g, and slope the slope of g over x - mean.
struct ChannelGradient {
  const float *mean, *factor, *mean_g, *slope;
};

// Bytes of one bit per value of `rows` rows, in the layout that these functions use.
std::size_t bits_bytes(std::int64_t rows, std::int64_t channels);

// y = activation(norm(x)). bits: whether the activation let the value pass; null: not requested.
void normalise_rows(const Tensor& y, const Tensor& x, const ChannelNorm&, std::uint32_t* bits);
// sum[c] = sum of x, square[c] = sum of x^2. x is summed as its difference from a value near the mean.
void sum_rows(const Tensor& x, double* sum, double* square);
// Sets g to 0 where its bit is not set. Then sum[c] = sum of g, product[c] = sum of g * (x - mean).
void pass_gradient_rows(const Tensor& g, const Tensor& x, const std::uint32_t* bits, const float* mean, double* sum,
                        double* product);
void gradient_rows(const Tensor& dx, const Tensor& g, const Tensor& x, const ChannelGradient&);

}  // namespace millrace::cpu::batch_norm
