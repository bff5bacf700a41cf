#include "cpu/winograd/winograd_weight_gradient.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cpu/common/tile.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

using winograd::odd_lines;

namespace {

constexpr std::int64_t vector_floats = 16;
// Of the transformed tiles of a block of one thread, and of the sums beside it: both stay in the second-level cache.
constexpr std::int64_t alone_block_bytes = 448 << 10, most_alone_sum_bytes = 160 << 10;
constexpr std::int64_t least_parts = 16;
// Of the transformed tiles of a block of all threads. The sums are read and written once for each block, so a block is
// larger than they are, within limits of the second-level and the third-level cache.
constexpr std::int64_t least_block_bytes = 2 << 20, most_block_bytes = 16 << 20;

std::size_t floats_at(std::int64_t floats) { return align64(std::size_t(floats) * sizeof(float)); }

}  // namespace

WinogradWeightGradient::WinogradWeightGradient(const ConvSpec& s, std::int64_t m)
    : transforms_(winograd::transforms(m, s.dtype)),
      kernels_(*onednn::tile_kernels()),
      tiles_(s, ConvPart::Of::forward, m),
      in_(tiles_.from[3]),
      out_(tiles_.to[3]),
      panels_((in_ + kernels_.columns - 1) / kernels_.columns),
      sum_floats_(transforms_.positions() * in_ * out_) {
  sum_floats_* std::int64_t(sizeof(float)) <= most_alone_sum_bytes ? plan_alone() : plan_together();
  const std::int64_t positions = transforms_.positions();
  panel_step_ = block_tiles_ * kernels_.columns;
  source_step_ = odd_lines(panels_ * panel_step_);
  diff_width_ = out_ + vector_floats;
  diff_step_ = odd_lines(block_tiles_ * diff_width_);
  diff_at_ = floats_at(positions * source_step_);
  block_bytes_ = diff_at_ + floats_at(positions * diff_step_);
  sums_at_ = block_bytes_ * std::size_t(parts_ > 0 ? thread_count() : 1);
  zeros_at_ = sums_at_ + floats_at(std::max<std::int64_t>(1, parts_) * sum_floats_);
  workspace_ = zeros_at_ + floats_at(std::max(in_, out_));
}

void WinogradWeightGradient::plan_alone() {
  const std::int64_t tile_bytes = transforms_.positions() * (in_ + out_) * std::int64_t(sizeof(float));
  const std::int64_t most = std::max<std::int64_t>(32, alone_block_bytes / tile_bytes);
  parts_ = std::clamp<std::int64_t>(tiles_.count() / most, 1, std::max<std::int64_t>(least_parts, 2 * thread_count()));
  const std::int64_t share = (tiles_.count() + parts_ - 1) / parts_, blocks = (share + most - 1) / most;
  block_tiles_ = (share + blocks - 1) / blocks;
}

void WinogradWeightGradient::plan_together() {
  const std::int64_t float_bytes = sizeof(float);
  const std::int64_t block_bytes = std::clamp(2 * sum_floats_ * float_bytes, least_block_bytes, most_block_bytes);
  const std::int64_t tile_bytes = transforms_.positions() * (in_ + out_) * float_bytes;
  const std::int64_t most = std::max<std::int64_t>(32, block_bytes / tile_bytes);
  const std::int64_t blocks = (tiles_.count() + most - 1) / most;
  block_tiles_ = (tiles_.count() + blocks - 1) / blocks;
}

std::string WinogradWeightGradient::implementation() const {
  return fmt::format("winograd {}:{}", transforms_.name, kernels_.name);
}

void WinogradWeightGradient::transform_tiles(const OpArgs& args, const Block& block, const float* zeros,
                                             std::int64_t begin, std::int64_t end) const {
  const void* pixels[36];
  const std::int64_t panel_vectors = kernels_.columns / vector_floats;
  for (std::int64_t i = begin; i < end; ++i) {
    tiles_.source_pixels(pixels, args.src[0].data, zeros, block.first + i);
    transforms_.input(pixels, in_ / vector_floats,
                      {block.source + i * kernels_.columns, source_step_, panel_vectors, panel_step_});
    tiles_.output_pixels(pixels, args.diff_dst.data, zeros, block.first + i);
    transforms_.diff_output(pixels, out_ / vector_floats, {block.diff + i * diff_width_, diff_step_, out_, 0});
  }
}

// sums[position] (out x in) = or += diff' * source, for some rows.
void WinogradWeightGradient::multiply(const Block& block, std::int64_t position, std::int64_t row_block) const {
  const std::int64_t begin = out_ * row_block / row_blocks(), end = out_ * (row_block + 1) / row_blocks();
  float* sums = block.sums + (position * out_ + begin) * in_;
  for (std::int64_t panel = 0; panel < panels_; ++panel) {
    const std::int64_t channel = panel * kernels_.columns;
    kernels_.multiply({block.diff + position * diff_step_ + begin, {1, diff_width_}, end - begin, block.count},
                      block.source + position * source_step_ + panel * panel_step_,
                      block.adds ? matmul::Start::dst : matmul::Start::zero, sums + channel, in_,
                      std::min(kernels_.columns, in_ - channel));
  }
}

void WinogradWeightGradient::write(const OpArgs& args, const float* sums) const {
  float* to = args.diff_weight[0].as<float>();
  const bool add = args.mode[0] == GradMode::add;
  parallel_ranges(out_, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      float* taps[9];
      for (std::int64_t t = 0; t < 9; ++t) taps[t] = to + (k * 9 + t) * in_;
      transforms_.diff_filter(sums + k * in_, out_ * in_, in_ / vector_floats, add, taps);
    }
  });
}

template <class Pixel>
void WinogradWeightGradient::write_bias(const OpArgs& args) const {
  constexpr std::int64_t chunk = 256;  // pixels whose sums are float32
  const Pixel* diff = args.diff_dst.as<Pixel>();
  float* to = args.diff_weight[1].as<float>();
  const std::int64_t pixels = tiles_.to[0] * tiles_.to[1] * tiles_.to[2];
  parallel_ranges(out_, vector_floats, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; k += vector_floats) {
      double total[vector_floats] = {};
      for (std::int64_t first = 0; first < pixels; first += chunk) {
        float sum[vector_floats] = {};
        for (std::int64_t p = first; p < std::min(pixels, first + chunk); ++p)
          for (std::int64_t c = 0; c < vector_floats; ++c) sum[c] += load(diff + p * out_ + k + c);
        for (std::int64_t c = 0; c < vector_floats; ++c) total[c] += double(sum[c]);
      }
      for (std::int64_t c = 0; c < vector_floats; ++c)
        to[k + c] = float(total[c]) + (args.mode[1] == GradMode::add ? to[k + c] : 0.0f);
    }
  });
}

void WinogradWeightGradient::run_alone(const OpArgs& args, const float* zeros, float* sums) const {
  parallel_ranges(parts_, 1, [&](std::int64_t first_part, std::int64_t last_part) {
    void* const memory = at(args.workspace, block_bytes_ * std::size_t(thread_number()));
    for (std::int64_t part = first_part; part < last_part; ++part) {
      const std::int64_t begin = tiles_.count() * part / parts_, end = tiles_.count() * (part + 1) / parts_;
      for (std::int64_t first = begin; first < end; first += block_tiles_) {
        const Block block{first,
                          std::min(block_tiles_, end - first),
                          static_cast<float*>(memory),
                          static_cast<float*>(at(memory, diff_at_)),
                          sums + part * sum_floats_,
                          first > begin};
        transform_tiles(args, block, zeros, 0, block.count);
        for (std::int64_t i = 0; i < transforms_.positions() * row_blocks(); ++i)
          multiply(block, i / row_blocks(), i % row_blocks());
      }
    }
  });
  parallel_ranges(sum_floats_, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = 1; part < parts_; ++part)
      add(sums + begin, sums + begin, sums + part * sum_floats_ + begin, end - begin);
  });
}

void WinogradWeightGradient::run_together(const OpArgs& args, const float* zeros, float* sums) const {
  for (std::int64_t first = 0; first < tiles_.count(); first += block_tiles_) {
    const Block block{first,
                      std::min(block_tiles_, tiles_.count() - first),
                      static_cast<float*>(args.workspace),
                      static_cast<float*>(at(args.workspace, diff_at_)),
                      sums,
                      first > 0};
    parallel_ranges(block.count, 4,
                    [&](std::int64_t begin, std::int64_t end) { transform_tiles(args, block, zeros, begin, end); });
    parallel_ranges(transforms_.positions() * row_blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) multiply(block, i / row_blocks(), i % row_blocks());
    });
  }
}

void WinogradWeightGradient::run(const OpArgs& args) {
  if (args.diff_weight[1]) tiles_.dtype == DType::f32 ? write_bias<float>(args) : write_bias<bf16>(args);
  if (!args.diff_weight[0]) return;
  float* zeros = static_cast<float*>(at(args.workspace, zeros_at_));
  std::fill_n(zeros, std::max(in_, out_), 0.0f);
  auto* sums = static_cast<float*>(at(args.workspace, sums_at_));
  parts_ > 0 ? run_alone(args, zeros, sums) : run_together(args, zeros, sums);
  write(args, sums);
}

}  // namespace millrace::cpu
