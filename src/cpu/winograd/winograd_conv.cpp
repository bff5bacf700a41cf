#include "cpu/winograd/winograd_conv.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn_op.hpp"
#include "cpu/winograd/weights.hpp"

namespace millrace::cpu {

using winograd::odd_lines, winograd::Tiles, winograd::Transforms;

namespace {

constexpr std::int64_t lane_floats = 16, line_floats = 16;
constexpr std::size_t most_alone_bytes = 640 << 10, most_product_bytes = 320 << 10;
// The weights are read once for each block, so a block that all threads share is as large as they are, within limits of
// the second-level and the third-level cache.
constexpr std::int64_t least_together_bytes = 2 << 20, most_together_bytes = 16 << 20;

}  // namespace

WinogradConv::WinogradConv(const ConvSpec& s, Of of, std::int64_t m, MemoryRequirements& needs, Split split)
    : of_(of),
      transforms_(winograd::transforms(m, s.dtype)),
      kernels_(*onednn::tile_kernels()),
      tiles_(s, of, m),
      in_(tiles_.from[3]),
      out_(tiles_.to[3]),
      weights_step_(odd_lines(in_ * kernels_.columns)),
      weights_at_(needs.packed_weights) {
  plan_blocks(split);
  needs.packed_weights += align64(std::size_t(transforms_.positions() * weights_step_ * panels()) * sizeof(float));
}

void WinogradConv::plan_blocks(Split split) {
  const std::int64_t positions = transforms_.positions(), threads = thread_count(), tall = kernels_.rows;
  const std::int64_t tile_floats = positions * (in_ + line_floats);
  const std::int64_t alone = std::int64_t(most_alone_bytes / sizeof(float)) /
                             (tile_floats + positions * (kernels_.columns + line_floats)) / tall * tall;
  together_ = split == Split::by_size && alone < 2 * tall;
  std::int64_t most = std::max(tall, alone), share = (tiles_.count() + threads - 1) / threads;
  if (together_) {
    const std::int64_t float_bytes = sizeof(float), weight_bytes = positions * in_ * out_ * float_bytes;
    const std::int64_t bytes = std::clamp(weight_bytes, least_together_bytes, most_together_bytes);
    most = std::max(tall, bytes / (positions * (in_ + out_) * float_bytes) / tall * tall);
    share = tiles_.count();
  }
  // Blocks of equal size
  const std::int64_t blocks = (share + most - 1) / most;
  block_tiles_ = (share + blocks * tall - 1) / (blocks * tall) * tall;
  source_width_ = in_ + line_floats;
  const std::int64_t panel_bytes = positions * block_tiles_ * kernels_.columns * std::int64_t(sizeof(float));
  group_ = together_ ? panels() : std::clamp<std::int64_t>(std::int64_t(most_product_bytes) / panel_bytes, 1, panels());
  product_width_ = group_ * kernels_.columns + line_floats;
  source_step_ = odd_lines(block_tiles_ * source_width_);
  product_step_ = odd_lines(block_tiles_ * product_width_);
  product_at_ = align64(std::size_t(positions * source_step_) * sizeof(float));
  block_bytes_ = product_at_ + align64(std::size_t(positions * product_step_) * sizeof(float));
  zeros_at_ = block_bytes_ * std::size_t(together_ ? 1 : threads);
  workspace_ = zeros_at_ + align64(std::size_t(in_ + threads * out_) * sizeof(float));
}

std::string WinogradConv::implementation() const {
  return fmt::format("winograd {}:{}{}", transforms_.name, kernels_.name, together_ ? " together" : "");
}

void WinogradConv::repack(const OpArgs& args) {
  const winograd::Weights weights{of_, args.weight[0].data, tiles_.dtype, in_, out_};
  const winograd::WeightSlice all{0, 0, kernels_.columns, weights_step_,
                                  static_cast<float*>(at(args.packed_weights, weights_at_))};
  const std::int64_t in_blocks = in_ / lane_floats, parts = out_ / lane_floats * in_blocks;
  parallel_ranges(parts, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part)
      transform_weights(transforms_, weights, all, part / in_blocks * lane_floats, part % in_blocks * lane_floats);
  });
}

void WinogradConv::transform_source(const Block& block, const Tensors& t, std::int64_t begin, std::int64_t end) const {
  const void* pixels[36];
  for (std::int64_t i = begin; i < end; ++i) {
    tiles_.source_pixels(pixels, t.from, t.zeros, block.first + i);
    transforms_.input(pixels, in_ / lane_floats, {block.source + i * source_width_, source_step_, in_, 0});
  }
}

void WinogradConv::multiply(const Block& block, const Tensors& t, std::int64_t position, std::int64_t panel,
                            std::int64_t column) const {
  const float* weights = t.weights + (panel * transforms_.positions() + position) * weights_step_;
  const float* source = block.source + position * source_step_;
  float* product = block.product + position * product_step_ + column;
  const std::int64_t count = std::min(kernels_.columns, out_ - panel * kernels_.columns);
  for (std::int64_t r = 0; r < block.count; r += kernels_.rows)
    kernels_.multiply({source + r * source_width_, {source_width_, 1}, std::min(kernels_.rows, block.count - r), in_},
                      weights, matmul::Start::zero, product + r * product_width_, product_width_, count);
}

void WinogradConv::transform_products(const Block& block, const Tensors& t, std::int64_t begin, std::int64_t end,
                                      std::int64_t channel, std::int64_t channels) const {
  void* const outside = at(t.outside, std::size_t(thread_number() * out_) * sizeof(float));
  void* pixels[16];
  for (std::int64_t i = begin; i < end; ++i) {
    tiles_.output_pixels(pixels, t.to, channel, outside, block.first + i);
    transforms_.output(block.product + i * product_width_, product_step_, t.bias ? t.bias + channel : nullptr,
                       channels / lane_floats, pixels);
  }
}

// Each thread computes blocks of its own.
void WinogradConv::run_alone(const OpArgs& args, const Tensors& t) const {
  parallel_ranges(tiles_.count(), block_tiles_, [&](std::int64_t begin, std::int64_t end) {
    void* memory = at(args.workspace, block_bytes_ * std::size_t(thread_number()));
    for (std::int64_t first = begin; first < end; first += block_tiles_) {
      const Block block{first, std::min(block_tiles_, end - first), static_cast<float*>(memory),
                        static_cast<float*>(at(memory, product_at_))};
      transform_source(block, t, 0, block.count);
      for (std::int64_t panel = 0; panel < panels(); panel += group_) {
        const std::int64_t channel = panel * kernels_.columns, end_panel = std::min(panels(), panel + group_);
        for (std::int64_t p = 0; p < transforms_.positions(); ++p)
          for (std::int64_t q = panel; q < end_panel; ++q) multiply(block, t, p, q, (q - panel) * kernels_.columns);
        transform_products(block, t, 0, block.count, channel, std::min(group_ * kernels_.columns, out_ - channel));
      }
    }
  });
}

void WinogradConv::run_together(const OpArgs& args, const Tensors& t) const {
  for (std::int64_t first = 0; first < tiles_.count(); first += block_tiles_) {
    const Block block{first, std::min(block_tiles_, tiles_.count() - first), static_cast<float*>(args.workspace),
                      static_cast<float*>(at(args.workspace, product_at_))};
    parallel_ranges(block.count, 4,
                    [&](std::int64_t begin, std::int64_t end) { transform_source(block, t, begin, end); });
    parallel_ranges(transforms_.positions() * panels(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        multiply(block, t, i / panels(), i % panels(), i % panels() * kernels_.columns);
    });
    parallel_ranges(block.count, 4,
                    [&](std::int64_t begin, std::int64_t end) { transform_products(block, t, begin, end, 0, out_); });
  }
}

void WinogradConv::run(const OpArgs& args) {
  const bool forward = of_ == Of::forward;
  Tensors t;
  t.from = (forward ? args.src[0] : args.diff_dst).data;
  t.to = (forward ? args.dst : args.diff_src[0]).data;
  t.bias = forward && args.weight[1] ? args.weight[1].as<float>() : nullptr;
  t.weights = static_cast<const float*>(at(args.packed_weights, weights_at_));
  float* zeros = static_cast<float*>(at(args.workspace, zeros_at_));
  std::fill_n(zeros, in_, 0.0f);
  t.zeros = zeros;
  t.outside = zeros + in_;
  together_ ? run_together(args, t) : run_alone(args, t);
}

}  // namespace millrace::cpu
