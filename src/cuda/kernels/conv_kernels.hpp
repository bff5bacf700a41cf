// Small kernels that complement cuDNN's convolutions, for f32, bf16 and f16.
#pragma once
#include "cuda/block/block.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cuda {

// values[r, c] += bias[c].
void add_bias(const LaunchContext&, void* values, DType, const float* bias, std::int64_t rows, std::int64_t channels);

// Copies rows to rows with another number of channels: dst[r, c] = src[r, c]. Channels that src does not have become
// zero; channels that dst does not have are dropped. Both types are equal, or dst is float32. GradMode::add needs a
// float32 dst.
struct Channels {
  void* data;
  DType dtype;
  std::int64_t channels;
};
void copy_channels(const LaunchContext&, const Channels& dst, const Channels& src, std::int64_t rows,
                   GradMode = GradMode::write);

}  // namespace millrace::cuda
