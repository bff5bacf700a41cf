// The transformed weights: (panels, positions, input channels, columns of a panel). A panel has 16 or 32 output
// channels (matmul::TileKernels).
#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn_op.hpp"
#include "cpu/winograd/winograd_conv.hpp"

namespace millrace::cpu {
namespace {

constexpr std::int64_t block_channels = 16, taps = 9;

}  // namespace

// From (K, 3, 3, C). One part are 16 output channels of the part's computation and all of its input channels.
void WinogradConv::repack(const OpArgs& args) {
  const float* from = args.weight[0].as<float>();
  float* to = static_cast<float*>(at(args.packed_weights, weights_at_));
  const std::int64_t in_blocks = in_ / block_channels, parts = out_ / block_channels * in_blocks;
  parallel_ranges(parts, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part)
      of_ == Of::forward ? repack_forward(from, to, part) : repack_data(from, to, part);
  });
}

// Output channels are the rows of the weight, so 16 x 16 channels of each tap are transposed first.
void WinogradConv::repack_forward(const float* from, float* to, std::int64_t part) const {
  const std::int64_t in_blocks = in_ / block_channels, out = part / in_blocks * block_channels,
                     in = part % in_blocks * block_channels;
  alignas(64) float turned[taps * block_channels * block_channels];
  for (std::int64_t t = 0; t < taps; ++t)
    matmul::pack_columns<block_channels>(turned + t * block_channels * block_channels,
                                         from + (out * taps + t) * in_ + in, {1, taps * in_}, block_channels,
                                         block_channels);
  const std::int64_t columns = kernels_.columns, step = in_ * columns;
  float* panel = to + out / columns * transforms_.positions() * step + out % columns;
  for (std::int64_t c = 0; c < block_channels; ++c) {
    const float* pointers[taps];
    for (std::int64_t t = 0; t < taps; ++t) pointers[t] = turned + (t * block_channels + c) * block_channels;
    transforms_.filter(pointers, 1, {panel + (in + c) * columns, step, 1, 0});
  }
}

// The output channels are those of the source. The taps are turned by 180 degrees.
void WinogradConv::repack_data(const float* from, float* to, std::int64_t part) const {
  const std::int64_t in_blocks = in_ / block_channels, out = part / in_blocks * block_channels,
                     in = part % in_blocks * block_channels;
  const std::int64_t columns = kernels_.columns, step = in_ * columns;
  float* panel = to + out / columns * transforms_.positions() * step + out % columns;
  for (std::int64_t k = in; k < in + block_channels; ++k) {
    const float* pointers[taps];
    for (std::int64_t t = 0; t < taps; ++t) pointers[t] = from + (k * taps + taps - 1 - t) * out_ + out;
    transforms_.filter(pointers, 1, {panel + k * columns, step, 1, 0});
  }
}

}  // namespace millrace::cpu
