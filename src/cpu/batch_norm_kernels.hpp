// Batch norm's arithmetic on one block of floats. `lines` are rows of b.width values (then b.tail), each operand with
// its own distance between rows; parameters have one value a lane.
#pragma once
#include "channel_grid.hpp"

namespace millrace::cpu::batch_norm {

struct Lines {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

// sum = sum of (x - shift), square = sum of its square.
void sums(const Block& b, Lines x, const float* shift, float* sum, float* square);
// sum = sum of g, product = sum of g * (x - mean).
void gradient_sums(const Block& b, Lines g, Lines x, const float* mean, float* sum, float* product);
// y = act((x - mean) * factor + beta + residual); residual.data may be null.
void normalise(const Block& b, float* y, std::int64_t y_stride, Lines x, Lines residual, const float* mean,
               const float* factor, const float* beta, bool relu);
// dx = factor * (g - mean_g - (x - mean) * slope)
void gradient(const Block& b, float* dx, std::int64_t dx_stride, Lines g, Lines x, const float* mean,
              const float* factor, const float* mean_g, const float* slope);

}  // namespace millrace::cpu::batch_norm
