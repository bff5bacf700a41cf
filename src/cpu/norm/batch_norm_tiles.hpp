// The arithmetic of batch norm on one block of tensors. float32 tensors are read and written in place, and so are bf16
// tensors if the processor has instructions for them. Other blocks of 16-bit tensors are converted in a tile.
#pragma once
#include "cpu/common/tile.hpp"
#include "cpu/norm/batch_norm_bf16.hpp"

namespace millrace::cpu::batch_norm {

// As in batch_norm_kernels.hpp. Arrays with one value per lane have ChannelGrid::max_width elements.
void block_sums(const Block&, const Tensor& x, const float* shift, float* sum, float* square);
void block_gradient_sums(const Block&, const Tensor& dy, const Tensor& x, const std::uint32_t* bits, const float* mean,
                         float* sum, float* product);
// Sets g to 0 where its bit is not set, and computes its sums.
void block_passed_gradient(const Block&, const Tensor& g, const Tensor& x, const std::uint32_t* bits, const float* mean,
                           float* sum, float* product);
// residual: may be null.
void normalise_block(const Block&, const Tensor& y, const Tensor& x, const Tensor& residual, std::uint32_t* bits,
                     Activation, const NormParameters&);

// dx and residual may be null.
struct GradientTensors {
  const Tensor &dx, &residual, &dy, &x;
};
void block_gradient(const Block&, const GradientTensors&, const std::uint32_t* bits, const GradientParameters&);

}  // namespace millrace::cpu::batch_norm
