#include "cpu/winograd/weights.hpp"

#include "cpu/common/half.hpp"

namespace millrace::cpu::winograd {
namespace {

constexpr std::int64_t block_channels = 16, taps = 9;

// 16 rows of the weights, with 16 channels of each tap.
struct Block {
  const float* from;
  std::int64_t row, tap;  // elements from one row, one tap to the next
};

// What the transforms read of the weights, which are (rows, 3, 3, width): float32 in place, or bf16 as a copy.
Block block_of(const Weights& w, std::int64_t width, std::int64_t row, std::int64_t column, float* copy) {
  const std::int64_t first = row * taps * width + column;
  if (w.dtype == DType::f32) return {static_cast<const float*>(w.from) + first, taps * width, width};
  const bf16* from = static_cast<const bf16*>(w.from) + first;
  for (std::int64_t i = 0; i < block_channels * taps; ++i)
    for (std::int64_t c = 0; c < block_channels; ++c) copy[i * block_channels + c] = load(from + i * width + c);
  return {copy, taps * block_channels, block_channels};
}

// Output channels are the rows of the weight, so 16 x 16 channels of each tap are transposed first.
void transform_forward(const Transforms& by, const Block& block, const TransformedTile& to, std::int64_t columns) {
  alignas(64) float turned[taps * block_channels * block_channels];
  for (std::int64_t t = 0; t < taps; ++t)
    matmul::pack_columns<block_channels>(turned + t * block_channels * block_channels, block.from + t * block.tap,
                                         {1, block.row}, block_channels, block_channels);
  for (std::int64_t c = 0; c < block_channels; ++c) {
    const void* pointers[taps];
    for (std::int64_t t = 0; t < taps; ++t) pointers[t] = turned + (t * block_channels + c) * block_channels;
    by.filter(pointers, 1, {to.data + c * columns, to.step, 1, 0});
  }
}

void transform_data(const Transforms& by, const Block& block, const TransformedTile& to, std::int64_t columns) {
  for (std::int64_t c = 0; c < block_channels; ++c) {
    const void* pointers[taps];
    for (std::int64_t t = 0; t < taps; ++t) pointers[t] = block.from + c * block.row + (taps - 1 - t) * block.tap;
    by.filter(pointers, 1, {to.data + c * columns, to.step, 1, 0});
  }
}

}  // namespace

void transform_weights(const Transforms& by, const Weights& w, const WeightSlice& slice, std::int64_t out,
                       std::int64_t in) {
  const std::int64_t columns = slice.columns, column = out - slice.first_out;
  float* const to =
      slice.to + column / columns * by.positions() * slice.step + (in - slice.first_in) * columns + column % columns;
  alignas(64) float copy[block_channels * taps * block_channels];
  if (w.of == ConvPart::Of::forward)
    transform_forward(by, block_of(w, w.in, out, in, copy), {to, slice.step, 1, 0}, columns);
  else
    transform_data(by, block_of(w, w.out, in, out, copy), {to, slice.step, 1, 0}, columns);
}

}  // namespace millrace::cpu::winograd
