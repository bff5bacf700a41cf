#include "cpu/conv/tile_weight_gradient.hpp"

#include <algorithm>

#include "cpu/common/parallel.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/matmul/tile_product.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

using matmul::tile_columns, matmul::tile_rows;

namespace {

constexpr std::int64_t least_pixels = 256;  // at least, if the plane has so many

constexpr std::int64_t most_sum_bytes = 64 << 20;

std::size_t bytes_of(std::int64_t floats) { return align64(std::size_t(floats) * sizeof(float)); }

}  // namespace

bool TileWeightGradient::is_faster(const ConvSpec& s) {
  const std::int64_t panels = (s.out_channels + tile_columns - 1) / tile_columns;
  // Each thread has sums of its own.
  const std::int64_t sums = thread_count() * s.weight().count() * std::int64_t(sizeof(float));
  // With fewer pixels in a plane, adding to the sums in memory takes longer than the products.
  const ConvAxes axes(s);
  return s.dtype == DType::f32 && onednn::prefers_float_matmul() && s.groups == 1 && axes.dst[2] * axes.dst[3] >= 128 &&
         (s.src[-1] >= 8 || s.window.rank == 3) && 4 * s.out_channels >= 3 * tile_columns * panels &&
         sums <= most_sum_bytes;
}

TileWeightGradient::TileWeightGradient(const ConvSpec& s) : axes_(s) {
  const Shape &src = axes_.src, &dst = axes_.dst;
  filter_ = axes_.taps() * src[4];
  outputs_ = (dst[4] + tile_columns - 1) / tile_columns * tile_columns;
  block_rows_ = std::clamp<std::int64_t>((least_pixels + dst[3] - 1) / dst[3], 1, dst[2]);
  blocks_of_plane_ = (dst[2] + block_rows_ - 1) / block_rows_;
  padded_rows_ = (block_rows_ - 1) * axes_.stride[1] + (axes_.kernel[1] - 1) * axes_.dilation[1] + 1;
  padded_width_ = (dst[3] - 1) * axes_.stride[2] + (axes_.kernel[2] - 1) * axes_.dilation[2] + 1;
  // Pixels whose distance is a multiple of 512 bytes map to few sets of the first-level cache.
  pixel_floats_ = src[4] % 128 == 0 ? src[4] + tile_columns : src[4];
  diff_at_ = bytes_of(axes_.kernel[0] * padded_rows_ * padded_width_ * pixel_floats_);
  sums_at_ = diff_at_ + bytes_of(block_rows_ * dst[3] * tile_columns);
  bias_at_ = sums_at_ + bytes_of(filter_ * outputs_);
  table_at_ = bias_at_ + bytes_of(outputs_);
  threads_ = std::min<std::int64_t>(thread_count(), dst[0] * dst[1] * blocks_of_plane_);
  thread_bytes_ = table_at_ + align64(std::size_t(block_rows_ * tile_rows) * sizeof(const float*));
}

std::size_t TileWeightGradient::workspace() const { return thread_bytes_ * std::size_t(threads_); }

TileWeightGradient::Memory TileWeightGradient::memory_of(const OpArgs& args, std::int64_t thread) const {
  void* base = at(args.workspace, thread_bytes_ * std::size_t(thread));
  return {static_cast<float*>(base), static_cast<float*>(at(base, diff_at_)), static_cast<float*>(at(base, sums_at_)),
          static_cast<float*>(at(base, bias_at_)), static_cast<const float**>(at(base, table_at_))};
}

// Copies what `count` output rows from (z, y) on read: (kernel depth, rows, padded width, channels).
void TileWeightGradient::copy_src(float* to, const float* src, std::int64_t image, std::int64_t z, std::int64_t y,
                                  std::int64_t count) const {
  const Shape& s = axes_.src;
  const std::int64_t rows = (count - 1) * axes_.stride[1] + (axes_.kernel[1] - 1) * axes_.dilation[1] + 1;
  const std::int64_t left = std::min(axes_.pad[2], padded_width_), copied = std::min(s[3], padded_width_ - left);
  for (std::int64_t dz = 0; dz < axes_.kernel[0]; ++dz)
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = to + (dz * padded_rows_ + r) * padded_width_ * pixel_floats_;
      const std::int64_t from_z = z * axes_.stride[0] + dz * axes_.dilation[0] - axes_.pad[0],
                         from_y = y * axes_.stride[1] + r - axes_.pad[1];
      if (from_z < 0 || from_z >= s[1] || from_y < 0 || from_y >= s[2]) {
        std::fill_n(row, padded_width_ * pixel_floats_, 0.0f);
        continue;
      }
      const float* from = src + ((image * s[1] + from_z) * s[2] + from_y) * s[3] * s[4];
      std::fill_n(row, left * pixel_floats_, 0.0f);
      if (pixel_floats_ == s[4])
        std::copy_n(from, copied * s[4], row + left * s[4]);
      else
        for (std::int64_t x = 0; x < copied; ++x) std::copy_n(from + x * s[4], s[4], row + (left + x) * pixel_floats_);
      std::fill_n(row + (left + copied) * pixel_floats_, (padded_width_ - left - copied) * pixel_floats_, 0.0f);
    }
}

void TileWeightGradient::add_block(const Memory& m, const OpArgs& args, std::int64_t block) const {
  const Shape& dst = axes_.dst;
  const std::int64_t plane = block / blocks_of_plane_, y = block % blocks_of_plane_ * block_rows_;
  const std::int64_t rows = std::min(block_rows_, dst[2] - y), pixels = rows * dst[3];
  copy_src(m.src, args.src[0].as<float>(), plane / dst[1], plane % dst[1], y, rows);
  const float* diff = args.diff_dst.as<float>() + (plane * dst[2] + y) * dst[3] * dst[4];
  for (std::int64_t c = 0; c < dst[4]; c += tile_columns) {
    matmul::pack_columns(m.diff, diff + c, {dst[4], 1}, pixels, std::min(tile_columns, dst[4] - c));
    for (std::int64_t p = 0; p < pixels && args.diff_weight[1]; ++p)
      add(m.bias + c, m.bias + c, m.diff + p * tile_columns, tile_columns);
    for (std::int64_t f = 0; f < filter_; f += tile_rows) {
      const std::int64_t tall = std::min(tile_rows, filter_ - f);
      for (std::int64_t i = 0; i < tall; ++i) {
        const auto [dz, dy, dx] = axes_.tap((f + i) / axes_.src[4]);
        const float* from =
            m.src +
            ((dz * padded_rows_ + dy * axes_.dilation[1]) * padded_width_ + dx * axes_.dilation[2]) * pixel_floats_ +
            (f + i) % axes_.src[4];
        for (std::int64_t r = 0; r < rows; ++r)
          m.table[r * tile_rows + i] = from + r * axes_.stride[1] * padded_width_ * pixel_floats_;
      }
      matmul::multiply_tile({m.table, tall, rows, dst[3], axes_.stride[2] * pixel_floats_}, m.diff, matmul::Start::dst,
                            nullptr, m.sums + f * outputs_ + c, outputs_, tile_columns);
    }
  }
}

// From (filter, outputs) to (outputs, filter). Adds up the sums of the threads in their order.
void TileWeightGradient::write(const OpArgs& args) const {
  const std::int64_t out = axes_.dst[4];
  if (args.diff_weight[0])
    parallel_ranges(out, tile_columns, [&](std::int64_t begin, std::int64_t end) {
      float* to = args.diff_weight[0].as<float>();
      for (std::int64_t f = 0; f < filter_; ++f)
        for (std::int64_t k = begin; k < end; ++k) {
          float sum = 0;
          for (std::int64_t t = 0; t < threads_; ++t) sum += memory_of(args, t).sums[f * outputs_ + k];
          float& value = to[k * filter_ + f];
          value = args.mode[0] == GradMode::add ? value + sum : sum;
        }
    });
  if (!args.diff_weight[1]) return;
  for (std::int64_t k = 0; k < out; ++k) {
    float sum = 0;
    for (std::int64_t t = 0; t < threads_; ++t) sum += memory_of(args, t).bias[k];
    float& value = args.diff_weight[1].as<float>()[k];
    value = args.mode[1] == GradMode::add ? value + sum : sum;
  }
}

void TileWeightGradient::run(const OpArgs& args) {
  const std::int64_t blocks = axes_.dst[0] * axes_.dst[1] * blocks_of_plane_;
  parallel_ranges(threads_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const Memory m = memory_of(args, t);
      std::fill_n(m.sums, filter_ * outputs_, 0.0f);
      std::fill_n(m.bias, outputs_, 0.0f);
      for (std::int64_t block = blocks * t / threads_; block < blocks * (t + 1) / threads_; ++block)
        add_block(m, args, block);
    }
  });
  write(args);
}

}  // namespace millrace::cpu
