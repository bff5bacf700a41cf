// The arithmetic of batch norm on one block of floats: b.rows rows of b.width values, then one row of b.tail values.
// Each operand has its own stride between rows. Parameters have one value per lane. `bits`: bit r of word i says
// whether the activation after the norm let the value in row r of lane i pass; null if there is no activation.
#pragma once
#include "cpu/common/channel_grid.hpp"

namespace millrace::cpu::batch_norm {

struct Lines {
  const float* data = nullptr;
  std::int64_t stride = 0;  // floats from one row to the next
};

struct Target {
  float* data = nullptr;
  std::int64_t stride = 0;
};

// One value per lane in each array.
struct NormParameters {
  const float* mean = nullptr;
  const float* factor = nullptr;  // scale / standard deviation
  const float* beta = nullptr;
};

// Computes sum = sum of (x - shift) and square = sum of (x - shift)^2 for each lane.
void sums(const Block& b, Lines x, const float* shift, float* sum, float* square);
// Computes sum = sum of g and product = sum of g * (x - mean) for each lane, where g = dy if its bit is set, otherwise
// 0.
void gradient_sums(const Block& b, Lines dy, Lines x, const std::uint32_t* bits, const float* mean, float* sum,
                   float* product);
// Sets g to 0 where its bit is not set, and computes its sums as gradient_sums() does.
void passed_gradient(const Block& b, Target g, Lines x, const std::uint32_t* bits, const float* mean, float* sum,
                     float* product);
// Computes y = act((x - mean) * factor + beta + residual), where act is none, relu or relu6. residual.data may be null.
// If bits is not null, there is an activation, and the bits are written.
void normalise(const Block& b, Target y, Lines x, Lines residual, std::uint32_t* bits, Activation act,
               const NormParameters& parameters);

struct GradientOperands {
  Target dx;
  Target residual;  // data is null if there is no residual
  Lines dy;
  Lines x;
};
// Computes dx = factor * (g - mean_g - (x - mean) * slope) and residual = g. The arrays have one value per lane: mean_g
// is the mean of g, and slope is the slope of g over x - mean. They are separate parameters, not a struct, because GCC
// vectorises this loop only for restrict-qualified parameters (measured: three times as fast).
void gradient(const Block& b, const GradientOperands& operands, const std::uint32_t* bits, const float* mean,
              const float* factor, const float* mean_g, const float* slope);

}  // namespace millrace::cpu::batch_norm
