// Small kernels around cuDNN's convolutions. f32, bf16 and f16.
#pragma once
#include "cuda/runtime/block.hpp"
#include "millrace/ops/op.hpp"

namespace millrace::cuda {

// values[r, c] += bias[c].
void add_bias(const LaunchContext&, void* values, DType, const float* bias, std::int64_t rows, std::int64_t channels);

// dst[r, c] <- src[r, c], zero where src has no channel c; what dst has no channel for is dropped. The types are equal
// or dst is float32; GradMode::add needs a float32 dst.
struct Channels {
  void* data;
  DType dtype;
  std::int64_t channels;
};
void copy_channels(const LaunchContext&, const Channels& dst, const Channels& src, std::int64_t rows,
                   GradMode = GradMode::write);

}  // namespace millrace::cuda
