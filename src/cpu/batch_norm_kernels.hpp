// Batch norm's arithmetic on one block of floats: rows of b.width values (then b.tail), each operand with its own
// distance between rows; parameters have one value a lane. bits: bit r of word i says what the ReLU behind it let pass
// in row r of lane i; null where there is no ReLU.
#pragma once
#include "cpu/common/channel_grid.hpp"

namespace millrace::cpu::batch_norm {

struct Lines {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

struct Target {
  float* data = nullptr;
  std::int64_t stride = 0;
};

// sum = sum of (x - shift), square = sum of its square.
void sums(const Block& b, Lines x, const float* shift, float* sum, float* square);
// sum = sum of g, product = sum of g * (x - mean), g = dy where its bit is set.
void gradient_sums(const Block& b, Lines dy, Lines x, const std::uint32_t* bits, const float* mean, float* sum,
                   float* product);
// y = act((x - mean) * factor + beta + residual); residual.data may be null. With bits: a ReLU, and they are written.
void normalise(const Block& b, Target y, Lines x, Lines residual, std::uint32_t* bits, bool relu, const float* mean,
               const float* factor, const float* beta);
// dx = factor * (g - mean_g - (x - mean) * slope), and dr = g where dr.data is not null.
void gradient(const Block& b, Target dx, Target dr, Lines dy, Lines x, const std::uint32_t* bits, const float* mean,
              const float* factor, const float* mean_g, const float* slope);

}  // namespace millrace::cpu::batch_norm
