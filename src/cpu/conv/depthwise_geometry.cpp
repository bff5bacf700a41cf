#include "cpu/conv/depthwise_geometry.hpp"

#include <algorithm>

#include "cpu/matmul/float_matmul.hpp"
#include "millrace/base/align.hpp"

namespace millrace::cpu {

namespace {

constexpr std::int64_t most_channels = 32;       // two cache lines of a pixel
constexpr std::int64_t most_copied = 128 << 10;  // bytes of a block's copy: part of the second-level cache
constexpr std::int64_t least_width = 32;         // of a block that is a part of a row

}  // namespace

bool DepthwiseGeometry::supports(const ConvSpec& s) {
  return s.dtype == DType::f32 && is_depthwise(s) && FloatMatmul::available();
}

DepthwiseGeometry::DepthwiseGeometry(const ConvSpec& s, ConvPart::Of of) {
  const ConvAxes axes(s);
  const bool data = of == ConvPart::Of::data;
  from_ = data ? axes.dst : axes.src;
  to_ = data ? axes.src : axes.dst;
  kernel_ = axes.kernel;
  dilation_ = axes.dilation;
  for (std::size_t a = 0; a < 3; ++a) {
    stride_[a] = data ? 1 : axes.stride[a];
    spread_[a] = data ? axes.stride[a] : 1;
    pad_[a] = data ? axes.dilation[a] * (axes.kernel[a] - 1) - axes.pad[a] : axes.pad[a];
  }
  channel_block_ = std::min(most_channels, panels() * lanes);
  divide();
  for (std::int64_t t = 0; t < axes.taps(); ++t) {
    const auto [z, y, x] = axes.tap(t);
    taps_.push_back(((z * padded_rows_ + y * dilation_[1]) * padded_width_ + x * dilation_[2]) * channel_block_);
  }
}

// Into as many rows, or as wide a part of one, as may be copied.
void DepthwiseGeometry::divide() {
  const auto extent_read = [&](std::size_t axis, std::int64_t results) {
    return (results - 1) * stride_[axis] + (kernel_[axis] - 1) * dilation_[axis] + 1;
  };
  const auto fits = [&](std::int64_t rows, std::int64_t width) {
    return kernel_[0] * extent_read(1, rows) * extent_read(2, width) * channel_block_ * std::int64_t(sizeof(float)) <=
           most_copied;
  };
  block_width_ = to_[3];
  while (block_width_ > least_width && !fits(1, block_width_)) block_width_ = (block_width_ + 1) / 2;
  block_rows_ = 1;
  while (block_width_ == to_[3] && block_rows_ < to_[2] && fits(block_rows_ + 1, block_width_)) ++block_rows_;
  blocks_of_row_ = (to_[3] + block_width_ - 1) / block_width_;
  blocks_of_plane_ = (to_[2] + block_rows_ - 1) / block_rows_;
  block_rows_ = (to_[2] + blocks_of_plane_ - 1) / blocks_of_plane_;
  padded_rows_ = extent_read(1, block_rows_);
  padded_width_ = extent_read(2, block_width_);
}

DepthwiseGeometry::Block DepthwiseGeometry::block(std::int64_t number) const {
  Block b{};
  b.x = number % blocks_of_row_ * block_width_;
  number /= blocks_of_row_;
  b.y = number % blocks_of_plane_ * block_rows_;
  number /= blocks_of_plane_;
  b.z = number % to_[1];
  number /= to_[1];
  b.image = number % to_[0];
  b.first_channel = number / to_[0] * channel_block_;
  b.rows = std::min(block_rows_, to_[2] - b.y);
  b.width = std::min(block_width_, to_[3] - b.x);
  b.channels = std::min(channel_block_, to_[4] - b.first_channel);
  return b;
}

std::size_t DepthwiseGeometry::copy_bytes() const {
  return align64(std::size_t(kernel_[0] * padded_rows_ * padded_width_ * channel_block_) * sizeof(float));
}

std::int64_t DepthwiseGeometry::coordinate(int axis, std::int64_t at) const {
  const std::int64_t spread = spread_[std::size_t(axis)];
  at -= pad_[std::size_t(axis)];
  return at < 0 || at % spread != 0 || at / spread >= from_[1 + axis] ? -1 : at / spread;
}

void DepthwiseGeometry::copy_row(float* to, const float* from, const Block& b) const {
  const std::int64_t channels = b.channels, whole = (channels + lanes - 1) / lanes * lanes;
  const std::int64_t begin = b.x * stride_[2],
                     end = begin + (b.width - 1) * stride_[2] + (kernel_[2] - 1) * dilation_[2];
  for (std::int64_t x = begin; x <= end; ++x, to += channel_block_) {
    const std::int64_t at = coordinate(2, x);
    if (at < 0) {
      std::fill_n(to, whole, 0.0f);
    } else if (channels == most_channels) {
      std::copy_n(from + at * from_[4], most_channels, to);
    } else {
      std::copy_n(from + at * from_[4], channels, to);
      std::fill_n(to + channels, whole - channels, 0.0f);
    }
  }
}

void DepthwiseGeometry::copy(float* to, const float* from, const Block& b) const {
  const std::int64_t rows = (b.rows - 1) * stride_[1] + (kernel_[1] - 1) * dilation_[1] + 1;
  for (std::int64_t k = 0; k < kernel_[0]; ++k) {
    const std::int64_t z = coordinate(0, b.z * stride_[0] + k * dilation_[0]);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t y = coordinate(1, b.y * stride_[1] + r);
      float* row = to + (k * padded_rows_ + r) * padded_width_ * channel_block_;
      if (z < 0 || y < 0)
        std::fill_n(row, padded_width_ * channel_block_, 0.0f);
      else
        copy_row(row, from + ((b.image * from_[1] + z) * from_[2] + y) * from_[3] * from_[4] + b.first_channel, b);
    }
  }
}

}  // namespace millrace::cpu
