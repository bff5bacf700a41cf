#include "cpu/conv/tile_conv.hpp"

#include <algorithm>

#include "cpu/common/parallel.hpp"
#include "cpu/matmul/tile_product.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

using matmul::tile_columns, matmul::tile_rows;

namespace {

// The pixels of a block, times their taps, stay in the second-level cache.
constexpr std::int64_t block_pixels = 16 * tile_rows;

std::int64_t panels(std::int64_t channels) { return (channels + tile_columns - 1) / tile_columns; }

}  // namespace

bool TileConv::is_faster(const ConvSpec& s, Of of) {
  const std::int64_t in = of == Of::forward ? s.src[-1] : s.out_channels,
                     out = of == Of::forward ? s.out_channels : s.src[-1];
  if (of == Of::data && s.window.stride != std::array<std::int64_t, 3>{1, 1, 1}) return false;
  // oneDNN leaves out the products with padding, which counts in small images and in volumes, and kernels of one tap
  // gain nothing (docs/benchmarks/2026-11-step-cpu.md).
  const ConvAxes axes(s);
  return s.dtype == DType::f32 && onednn::prefers_float_matmul() && s.groups == 1 && s.window.rank <= 2 &&
         axes.taps() > 1 && axes.dst[2] * axes.dst[3] >= 64 && in >= 8 && 4 * out >= 3 * tile_columns * panels(out);
}

TileConv::TileConv(const ConvSpec& s, Of of, MemoryRequirements& needs)
    : axes_(s),
      of_(of),
      from_(of == Of::forward ? axes_.src : axes_.dst),
      to_(of == Of::forward ? axes_.dst : axes_.src),
      weights_at_(needs.packed_weights) {
  for (std::int64_t t = 0; t < axes_.taps(); ++t) {
    Point shift = axes_.tap(t);
    for (std::size_t a = 0; a < 3; ++a) {
      shift[a] = shift[a] * axes_.dilation[a] - axes_.pad[a];
      if (of == Of::data) shift[a] = -shift[a];
      least_[a] = t == 0 ? shift[a] : std::min(least_[a], shift[a]);
      most_[a] = t == 0 ? shift[a] : std::max(most_[a], shift[a]);
    }
    shifts_.push_back(shift);
    offsets_.push_back(((shift[0] * from_[2] + shift[1]) * from_[3] + shift[2]) * from_[4]);
  }
  needs.packed_weights += align64(std::size_t(panels(to_[4]) * tile_columns * axes_.taps() * from_[4]) * sizeof(float));
  table_bytes_ = align64(std::size_t(block_pixels * axes_.taps()) * sizeof(const float*));
  zeros_at_ = table_bytes_ * std::size_t(thread_count());
  workspace_ = zeros_at_ + align64(std::size_t(from_[4]) * sizeof(float));
}

// From (K, kernel..., C) to (panels, kernel..., inputs, 16 outputs).
void TileConv::repack(const OpArgs& args) {
  const std::int64_t in = from_[4], out = to_[4], taps = axes_.taps(), channels = axes_.src[4];
  const bool forward = of_ == Of::forward;
  const MatrixStrides strides =
      forward ? MatrixStrides{1, taps * channels} : MatrixStrides{taps * channels, 1};  // (inputs, outputs)
  const float* from = args.weight[0].as<float>();
  float* to = static_cast<float*>(at(args.packed_weights, weights_at_));
  parallel_ranges(panels(out) * taps, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = part / taps * tile_columns;
      matmul::pack_columns(to + part * in * tile_columns, from + part % taps * channels + first * strides.column,
                           strides, in, std::min(tile_columns, out - first));
    }
  });
}

void TileConv::fill_pixel(const float** table, const float* image, const float* zeros, const Point& pixel) const {
  Point first;
  bool inside = true;
  for (std::size_t a = 0; a < 3; ++a) {
    first[a] = of_ == Of::forward ? pixel[a] * axes_.stride[a] : pixel[a];
    inside = inside && first[a] + least_[a] >= 0 && first[a] + most_[a] < from_[1 + int(a)];
  }
  const float* base = image + ((first[0] * from_[2] + first[1]) * from_[3] + first[2]) * from_[4];
  for (std::size_t t = 0; t < shifts_.size(); ++t) {
    bool reads = inside;
    if (!inside) {
      reads = true;
      for (std::size_t a = 0; a < 3; ++a) {
        const std::int64_t at = first[a] + shifts_[t][a];
        reads = reads && at >= 0 && at < from_[1 + int(a)];
      }
    }
    table[t * std::size_t(tile_rows)] = reads ? base + offsets_[t] : zeros;
  }
}

// The table of tile i begins at i * 6 * taps. In it, pixel r of tap t is at t * 6 + r.
void TileConv::fill_table(const float** table, const float* from, const float* zeros, std::int64_t pixel,
                          std::int64_t count) const {
  Point p{pixel / (to_[3] * to_[2]) % to_[1], pixel / to_[3] % to_[2], pixel % to_[3]};
  std::int64_t image = pixel / (to_[1] * to_[2] * to_[3]);
  const std::int64_t image_size = from_[1] * from_[2] * from_[3] * from_[4];
  for (std::int64_t i = 0; i < count; ++i) {
    fill_pixel(table + i / tile_rows * tile_rows * axes_.taps() + i % tile_rows, from + image * image_size, zeros, p);
    if (++p[2] < to_[3]) continue;
    p[2] = 0;
    if (++p[1] < to_[2]) continue;
    p[1] = 0;
    if (++p[0] < to_[1]) continue;
    p[0] = 0;
    ++image;
  }
}

void TileConv::run(const OpArgs& args) {
  const bool forward = of_ == Of::forward;
  const float* from = (forward ? args.src[0] : args.diff_dst).as<float>();
  float* to = (forward ? args.dst : args.diff_src[0]).as<float>();
  const float* bias = forward && args.weight[1] ? args.weight[1].as<float>() : nullptr;
  const float* weights = static_cast<const float*>(at(args.packed_weights, weights_at_));
  float* zeros = static_cast<float*>(at(args.workspace, zeros_at_));
  std::fill_n(zeros, from_[4], 0.0f);
  const std::int64_t in = from_[4], out = to_[4], taps = axes_.taps(), pixels = to_[0] * to_[1] * to_[2] * to_[3];
  parallel_ranges(pixels, block_pixels, [&](std::int64_t begin, std::int64_t end) {
    const auto table = static_cast<const float**>(at(args.workspace, table_bytes_ * std::size_t(thread_number())));
    for (std::int64_t first = begin; first < end; first += block_pixels) {
      const std::int64_t count = std::min(block_pixels, end - first);
      fill_table(table, from, zeros, first, count);
      for (std::int64_t c = 0; c < out; c += tile_columns)
        for (std::int64_t p = 0; p < count; p += tile_rows)
          matmul::multiply_tile({table + p * taps, std::min(tile_rows, count - p), taps, in, 1},
                                weights + c * taps * in, bias ? matmul::Start::bias : matmul::Start::zero,
                                bias ? bias + c : nullptr, to + (first + p) * out + c, out,
                                std::min(tile_columns, out - c));
    }
  });
}

}  // namespace millrace::cpu
