// Transforms the weights of a convolution for Winograd's filtering.
#pragma once
#include "cpu/common/conv_part.hpp"
#include "cpu/matmul/tile_product.hpp"
#include "cpu/winograd/transforms.hpp"

namespace millrace::cpu::winograd {

struct Weights {
  // forward: from (out, 3, 3, in). data: from (in, 3, 3, out), with the taps turned by 180 degrees. `in` and `out` are
  // the channels of the computation, multiples of 16.
  ConvPart::Of of;
  const void* from;
  DType dtype;  // of `from`: f32 or bf16
  std::int64_t in, out;
};

// Some channels of the transformed weights: (panels, positions, input channels, columns of a panel). A panel has 16 or
// 32 output channels (matmul::TileKernels). The first output channel begins a panel.
struct WeightSlice {
  std::int64_t first_in, first_out;
  std::int64_t columns, step;  // elements from one position to the next
  float* to;
};

// Transforms 16 output channels from `out` on and the 16 input channels from `in` on.
void transform_weights(const Transforms&, const Weights&, const WeightSlice&, std::int64_t out, std::int64_t in);

}  // namespace millrace::cpu::winograd
