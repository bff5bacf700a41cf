#include "cpu/winograd/weights.hpp"

namespace millrace::cpu::winograd {
namespace {

constexpr std::int64_t block_channels = 16, taps = 9;

// Output channels are the rows of the weight, so 16 x 16 channels of each tap are transposed first.
void transform_forward(const Transforms& by, const Weights& w, const TransformedTile& to, std::int64_t columns,
                       std::int64_t out, std::int64_t in) {
  alignas(64) float turned[taps * block_channels * block_channels];
  for (std::int64_t t = 0; t < taps; ++t)
    matmul::pack_columns<block_channels>(turned + t * block_channels * block_channels,
                                         w.from + (out * taps + t) * w.in + in, {1, taps * w.in}, block_channels,
                                         block_channels);
  for (std::int64_t c = 0; c < block_channels; ++c) {
    const float* pointers[taps];
    for (std::int64_t t = 0; t < taps; ++t) pointers[t] = turned + (t * block_channels + c) * block_channels;
    by.filter(pointers, 1, {to.data + c * columns, to.step, 1, 0});
  }
}

void transform_data(const Transforms& by, const Weights& w, const TransformedTile& to, std::int64_t columns,
                    std::int64_t out, std::int64_t in) {
  for (std::int64_t c = 0; c < block_channels; ++c) {
    const float* pointers[taps];
    for (std::int64_t t = 0; t < taps; ++t) pointers[t] = w.from + ((in + c) * taps + taps - 1 - t) * w.out + out;
    by.filter(pointers, 1, {to.data + c * columns, to.step, 1, 0});
  }
}

}  // namespace

void transform_weights(const Transforms& by, const Weights& w, const WeightSlice& slice, std::int64_t out,
                       std::int64_t in) {
  const std::int64_t columns = slice.columns, column = out - slice.first_out;
  float* const to =
      slice.to + column / columns * by.positions() * slice.step + (in - slice.first_in) * columns + column % columns;
  const auto transform = w.of == ConvPart::Of::forward ? transform_forward : transform_data;
  transform(by, w, {to, slice.step, 1, 0}, columns, out, in);
}

}  // namespace millrace::cpu::winograd
