// What the parts of a depthwise convolution read: a block of pixels of 32 channels, copied with its padding, so that
// each tap of the kernel is at a fixed distance and the channels of a pixel lie side by side.
#pragma once
#include <vector>

#include "cpu/common/conv_axes.hpp"
#include "cpu/common/conv_part.hpp"

namespace millrace::cpu {

class DepthwiseGeometry {
 public:
  static constexpr std::int64_t lanes = 16;  // channels that the kernels compute at once

  // Whether each channel has a kernel of its own, the type is float32 and the processor has AVX2.
  static bool supports(const ConvSpec&);

  // data: reads diff_dst as a convolution of stride 1 does that has zeros between the pixels and a turned kernel.
  DepthwiseGeometry(const ConvSpec&, ConvPart::Of);

  struct Block {
    std::int64_t image, z, y, x, rows, width;  // of the output
    std::int64_t first_channel, channels;      // at most channel_block()
  };
  std::int64_t blocks() const { return blocks_of_channels() * blocks_of_pixels(); }
  Block block(std::int64_t number) const;  // those of the same channels follow each other

  // Copies what the block reads: (kernel depth, rows, padded width, channel_block()). Channels that do not exist, up to
  // a multiple of 16, are zeros.
  void copy(float* to, const float* from, const Block&) const;
  std::size_t copy_bytes() const;

  // In elements of the copy.
  std::int64_t row_step() const { return stride_[1] * padded_width_ * channel_block_; }
  std::int64_t pixel_step() const { return stride_[2] * channel_block_; }
  const std::vector<std::int64_t>& taps() const { return taps_; }  // from an output pixel's first tap to each

  std::int64_t channel_block() const { return channel_block_; }
  std::int64_t panels() const { return (to_[4] + lanes - 1) / lanes; }     // of 16 channels
  std::int64_t most_pixels() const { return block_rows_ * block_width_; }  // of a block
  const Shape& to() const { return to_; }

 private:
  void divide();
  std::int64_t blocks_of_channels() const { return (to_[4] + channel_block_ - 1) / channel_block_; }
  std::int64_t blocks_of_pixels() const { return to_[0] * to_[1] * blocks_of_plane_ * blocks_of_row_; }
  // The coordinate of `from` on an axis, or -1 for padding.
  std::int64_t coordinate(int axis, std::int64_t at) const;
  void copy_row(float* to, const float* from, const Block&) const;

  Shape from_, to_;
  std::array<std::int64_t, 3> kernel_, stride_, spread_, pad_, dilation_;
  std::int64_t channel_block_, padded_width_, padded_rows_, block_rows_, block_width_, blocks_of_plane_, blocks_of_row_;
  std::vector<std::int64_t> taps_;
};

}  // namespace millrace::cpu
