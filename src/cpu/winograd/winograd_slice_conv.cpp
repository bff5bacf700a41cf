#include "cpu/winograd/winograd_slice_conv.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

using winograd::odd_lines;

namespace {

constexpr std::int64_t vector_channels = 16, padding_floats = 16;
// A thread has a slice of the weights for a group of output channels (0.3 MB for 64), and the products of a part of the
// tiles (0.8 MB for 72). The products are read and written for each slice, the source is read for each group, and
// weights are transformed for each part.
constexpr std::int64_t slice_channels = 32, most_group = 64;
constexpr double share_of_cache = 0.4;  // for the products
constexpr std::int64_t units_per_thread = 2;
// Weights are transformed for each part here, and once where they are kept in memory. Beyond the caches, writing them
// takes longer. Measured with one and two threads on a Xeon with 2 MiB of second-level cache.
constexpr std::size_t least_weight_bytes = 8 << 20, large_weight_bytes = 16 << 20;
constexpr std::int64_t most_tiles = 128, most_tiles_of_large_weights = 256;

std::size_t end_of(std::int64_t floats) { return align64(std::size_t(floats) * sizeof(float)); }

// Whole panels of `rows` whose products stay in a second-level cache of 1 MiB and more; for smaller parts, weights
// would be transformed too often. 72 tiles for 2 MiB and a group of 64.
std::int64_t most_part(std::int64_t positions, std::int64_t group, std::int64_t rows) {
  static const std::int64_t cache = std::max<std::int64_t>(1 << 20, ::sysconf(_SC_LEVEL2_CACHE_SIZE));
  const std::int64_t tile_bytes = positions * (group + padding_floats) * std::int64_t(sizeof(float));
  return std::max<std::int64_t>(2, std::int64_t(share_of_cache * double(cache)) / tile_bytes / rows) * rows;
}

}  // namespace

bool WinogradSliceConv::is_faster(const ConvSpec& s, Of of) {
  if (!winograd::supports(s)) return false;
  const winograd::Tiles tiles(s, of, 4);
  const auto bytes = std::size_t(tiles.tile * tiles.tile * tiles.from[3] * tiles.to[3]) * sizeof(float);
  return bytes >= least_weight_bytes &&
         tiles.count() <= (bytes >= large_weight_bytes ? most_tiles_of_large_weights : most_tiles);
}

WinogradSliceConv::WinogradSliceConv(const ConvSpec& s, Of of)
    : of_(of),
      transforms_(winograd::transforms(4, s.dtype)),
      kernels_(*onednn::tile_kernels()),
      tiles_(s, of, 4),
      in_(tiles_.from[3]),
      out_(tiles_.to[3]) {
  plan();
  const std::int64_t positions = transforms_.positions();
  source_step_ = odd_lines(tiles_.count() * slice_channels);
  slice_step_ = positions * source_step_;
  product_width_ = group_ + padding_floats;
  product_step_ = odd_lines(part_ * product_width_);
  weights_step_ = odd_lines(slice_channels * kernels_.columns);
  product_at_ = end_of(positions * weights_step_ * (group_ / kernels_.columns));
  thread_bytes_ = product_at_ + end_of(positions * product_step_);
  memory_at_ = end_of((in_ + slice_channels - 1) / slice_channels * slice_step_);
  zeros_at_ = memory_at_ + thread_bytes_ * std::size_t(thread_count());
  workspace_ = zeros_at_ + end_of(in_ + thread_count() * out_);
}

// Units as large as the second-level cache allows, but smaller ones where threads would have none.
void WinogradSliceConv::plan() {
  const std::int64_t columns = kernels_.columns, least = units_per_thread * thread_count();
  group_ = std::min((out_ + columns - 1) / columns * columns, most_group);
  const std::int64_t most = most_part(transforms_.positions(), group_, kernels_.rows);
  parts_ = (tiles_.count() + most - 1) / most;
  if (thread_count() > 1 && parts_ * groups() < least) group_ = columns;
  if (thread_count() > 1)
    while (parts_ * groups() < least && tiles_.count() / parts_ >= 2 * kernels_.rows) ++parts_;
  part_ = (tiles_.count() + parts_ - 1) / parts_;
}

std::string WinogradSliceConv::implementation() const {
  return fmt::format("winograd {}:{} by slices", transforms_.name, kernels_.name);
}

void WinogradSliceConv::transform_source(const Tensors& t, std::int64_t begin, std::int64_t end) const {
  const void* pixels[36];
  for (std::int64_t i = begin; i < end; ++i) {
    tiles_.source_pixels(pixels, t.from, t.zeros, i);
    transforms_.input(pixels, in_ / vector_channels,
                      {t.source + i * slice_channels, source_step_, slice_channels / vector_channels, slice_step_});
  }
}

void WinogradSliceConv::multiply(const Tensors& t, const Unit& unit, std::int64_t slice, std::int64_t depth) const {
  const std::int64_t columns = kernels_.columns, tiles = unit.end - unit.begin;
  const std::int64_t row_blocks = (tiles + kernels_.rows - 1) / kernels_.rows;
  const float* weights = unit.weights;
  for (std::int64_t channel = 0; channel < unit.channels; channel += columns)
    for (std::int64_t p = 0; p < transforms_.positions(); ++p, weights += weights_step_)
      for (std::int64_t block = 0; block < row_blocks; ++block) {
        const std::int64_t row = tiles * block / row_blocks, rows = tiles * (block + 1) / row_blocks - row;
        kernels_.multiply(
            {t.source + slice / slice_channels * slice_step_ + p * source_step_ + (unit.begin + row) * slice_channels,
             {slice_channels, 1},
             rows,
             depth},
            weights, slice == 0 ? matmul::Start::zero : matmul::Start::dst,
            unit.product + p * product_step_ + row * product_width_ + channel, product_width_,
            std::min(columns, unit.channels - channel));
      }
}

void WinogradSliceConv::transform_products(const Tensors& t, const Unit& unit) const {
  void* pixels[16];
  void* const outside = at(t.outside, std::size_t(thread_number() * out_) * sizeof(float));
  for (std::int64_t i = unit.begin; i < unit.end; ++i) {
    tiles_.output_pixels(pixels, t.to, unit.channel, outside, i);
    transforms_.output(unit.product + (i - unit.begin) * product_width_, product_step_,
                       t.bias ? t.bias + unit.channel : nullptr, unit.channels / vector_channels, pixels);
  }
}

void WinogradSliceConv::compute(const Tensors& t, const Unit& unit) const {
  const winograd::Weights weights{of_, t.weight, tiles_.dtype, in_, out_};
  for (std::int64_t slice = 0; slice < in_; slice += slice_channels) {
    const std::int64_t depth = std::min(slice_channels, in_ - slice);
    for (std::int64_t out = unit.channel; out < unit.channel + unit.channels; out += vector_channels)
      for (std::int64_t in = slice; in < slice + depth; in += vector_channels)
        transform_weights(transforms_, weights, {slice, unit.channel, kernels_.columns, weights_step_, unit.weights},
                          out, in);
    multiply(t, unit, slice, depth);
  }
  transform_products(t, unit);
}

void WinogradSliceConv::run(const OpArgs& args) {
  const bool forward = of_ == Of::forward;
  Tensors t;
  t.from = (forward ? args.src[0] : args.diff_dst).data;
  t.to = (forward ? args.dst : args.diff_src[0]).data;
  t.weight = args.weight[0].data;
  t.bias = forward && args.weight[1] ? args.weight[1].as<float>() : nullptr;
  t.source = static_cast<float*>(args.workspace);
  t.memory = static_cast<std::byte*>(at(args.workspace, memory_at_));
  float* zeros = static_cast<float*>(at(args.workspace, zeros_at_));
  std::fill_n(zeros, in_, 0.0f);
  t.zeros = zeros;
  t.outside = zeros + in_;
  parallel_ranges(tiles_.count(), 4, [&](std::int64_t begin, std::int64_t end) { transform_source(t, begin, end); });
  parallel_ranges(parts_ * groups(), 1, [&](std::int64_t begin, std::int64_t end) {
    std::byte* const memory = t.memory + thread_bytes_ * std::size_t(thread_number());
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t part = i / groups(), channel = i % groups() * group_;
      compute(t, {tiles_.count() * part / parts_, tiles_.count() * (part + 1) / parts_, channel,
                  std::min(group_, out_ - channel), reinterpret_cast<float*>(memory),
                  reinterpret_cast<float*>(memory + product_at_)});
    }
  });
}

}  // namespace millrace::cpu
