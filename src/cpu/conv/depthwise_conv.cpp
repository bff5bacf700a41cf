#include "cpu/conv/depthwise_conv.hpp"

#include <algorithm>

#include "cpu/common/parallel.hpp"
#include "cpu/conv/depthwise_kernels.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

DepthwiseConv::DepthwiseConv(const ConvSpec& s, Of of, MemoryRequirements& needs)
    : geometry_(s, of), of_(of), taps_(std::int64_t(geometry_.taps().size())), weights_at_(needs.packed_weights) {
  needs.packed_weights += align64(std::size_t(geometry_.panels() * taps_ * geometry_.lanes) * sizeof(float));
}

std::size_t DepthwiseConv::workspace() const { return geometry_.copy_bytes() * std::size_t(thread_count()); }

// From (C, kernel...) to (panels, kernel..., 16 channels); for the gradient of the source the kernel is turned.
void DepthwiseConv::repack(const OpArgs& args) {
  constexpr std::int64_t lanes = DepthwiseGeometry::lanes;
  const float* from = args.weight[0].as<float>();
  float* to = static_cast<float*>(at(args.packed_weights, weights_at_));
  for (std::int64_t panel = 0; panel < geometry_.panels(); ++panel)
    for (std::int64_t t = 0; t < taps_; ++t)
      for (std::int64_t c = panel * lanes; c < (panel + 1) * lanes; ++c)
        *to++ = c < geometry_.to()[4] ? from[c * taps_ + (of_ == Of::forward ? t : taps_ - 1 - t)] : 0.0f;
}

void DepthwiseConv::run_block(const DepthwiseGeometry::Block& b, const OpArgs& args, float* copy) const {
  constexpr std::int64_t lanes = DepthwiseGeometry::lanes;
  const bool forward = of_ == Of::forward;
  geometry_.copy(copy, (forward ? args.src[0] : args.diff_dst).as<float>(), b);
  const float* bias = forward && args.weight[1] ? args.weight[1].as<float>() + b.first_channel : nullptr;
  const Shape& shape = geometry_.to();
  float* to = (forward ? args.dst : args.diff_src[0]).as<float>() +
              (((b.image * shape[1] + b.z) * shape[2] + b.y) * shape[3] + b.x) * shape[4] + b.first_channel;
  for (std::int64_t c = 0; c < b.channels; c += lanes) {
    const std::int64_t channels = std::min(lanes, b.channels - c);
    const float* weights =
        static_cast<const float*>(at(args.packed_weights, weights_at_)) + (b.first_channel + c) * taps_;
    float start[lanes] = {}, tile[depthwise::most_pixels * lanes];
    if (bias) std::copy_n(bias + c, channels, start);
    for (std::int64_t r = 0; r < b.rows; ++r)
      for (std::int64_t x = 0; x < b.width; x += depthwise::most_pixels) {
        const std::int64_t pixels = std::min(depthwise::most_pixels, b.width - x);
        const float* from = copy + r * geometry_.row_step() + x * geometry_.pixel_step() + c;
        float* first = to + (r * shape[3] + x) * shape[4] + c;
        const bool whole = channels == lanes;
        depthwise::convolve({from, geometry_.pixel_step(), geometry_.taps().data(), taps_, weights,
                             bias ? start : nullptr, whole ? first : tile, whole ? shape[4] : lanes},
                            pixels);
        for (std::int64_t p = 0; p < pixels && !whole; ++p)
          std::copy_n(tile + p * lanes, channels, first + p * shape[4]);
      }
  }
}

void DepthwiseConv::run(const OpArgs& args) {
  parallel_ranges(geometry_.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
    float* copy = static_cast<float*>(at(args.workspace, geometry_.copy_bytes() * std::size_t(thread_number())));
    for (std::int64_t i = begin; i < end; ++i) run_block(geometry_.block(i), args, copy);
  });
}

}  // namespace millrace::cpu
