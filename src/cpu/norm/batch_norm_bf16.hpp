// The functions of batch_norm_kernels.hpp on bf16 values in memory, for processors that have AVX-512 with bf16. Other
// processors convert blocks to float32 and back, which takes twice as long as the arithmetic. Such functions for
// float32 values were no faster than the loops that the compiler vectorises
// (docs/benchmarks/2026-11-batch-norm-cpu.md).
#pragma once
#include "cpu/norm/batch_norm_kernels.hpp"

namespace millrace::cpu::batch_norm {

// Whether this processor has the instructions. The functions below may only be called then. Arrays with one value per
// lane have ChannelGrid::max_width elements. Results below 2^-126 become 0, as in oneDNN.
bool has_bf16_kernels();

struct HalfLines {
  const bf16* data = nullptr;
  std::int64_t stride = 0;  // elements from one row to the next
};
struct HalfTarget {
  bf16* data = nullptr;  // null: not requested
  std::int64_t stride = 0;
};
struct HalfNorm {
  HalfTarget y;
  HalfLines x, residual;
};
struct HalfGradient {
  HalfTarget dx, residual;
  HalfLines dy, x;
};
struct GradientParameters {  // one value per lane in each array
  const float *mean, *factor, *mean_g, *slope;
};

void sums(const Block& b, HalfLines x, const float* shift, float* sum, float* square);
void gradient_sums(const Block& b, HalfLines dy, HalfLines x, const std::uint32_t* bits, const float* mean, float* sum,
                   float* product);
void passed_gradient(const Block& b, HalfTarget g, HalfLines x, const std::uint32_t* bits, const float* mean,
                     float* sum, float* product);
void normalise(const Block& b, const HalfNorm&, std::uint32_t* bits, Activation, const NormParameters&);
void gradient(const Block& b, const HalfGradient&, const std::uint32_t* bits, const GradientParameters&);

}  // namespace millrace::cpu::batch_norm
