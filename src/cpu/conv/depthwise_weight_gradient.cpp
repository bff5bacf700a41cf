#include "cpu/conv/depthwise_weight_gradient.hpp"

#include <algorithm>

#include "cpu/common/parallel.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/conv/depthwise_kernels.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

namespace {

constexpr std::int64_t lanes = DepthwiseGeometry::lanes;

std::size_t bytes_of(std::int64_t floats) { return align64(std::size_t(floats) * sizeof(float)); }

}  // namespace

DepthwiseWeightGradient::DepthwiseWeightGradient(const ConvSpec& s)
    : geometry_(s, Of::forward), taps_(std::int64_t(geometry_.taps().size())) {
  threads_ = std::min<std::int64_t>(thread_count(), geometry_.blocks());
  diff_at_ = geometry_.copy_bytes();
  sums_at_ = diff_at_ + bytes_of(geometry_.most_pixels() * geometry_.channel_block());
  bias_at_ = sums_at_ + bytes_of(geometry_.panels() * taps_ * lanes);
  thread_bytes_ = bias_at_ + bytes_of(geometry_.panels() * lanes);
}

DepthwiseWeightGradient::Memory DepthwiseWeightGradient::memory_of(const OpArgs& args, std::int64_t thread) const {
  void* base = at(args.workspace, thread_bytes_ * std::size_t(thread));
  return {static_cast<float*>(base), static_cast<float*>(at(base, diff_at_)), static_cast<float*>(at(base, sums_at_)),
          static_cast<float*>(at(base, bias_at_))};
}

// Copies the channels of the block, with zeros up to a multiple of 16.
void DepthwiseWeightGradient::copy_diff(float* to, const float* diff, const DepthwiseGeometry::Block& b) const {
  const Shape& shape = geometry_.to();
  const std::int64_t whole = (b.channels + lanes - 1) / lanes * lanes;
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const float* from =
        diff + (((b.image * shape[1] + b.z) * shape[2] + b.y + r) * shape[3] + b.x) * shape[4] + b.first_channel;
    for (std::int64_t p = 0; p < b.width; ++p, to += geometry_.channel_block(), from += shape[4]) {
      std::copy_n(from, b.channels, to);
      std::fill_n(to + b.channels, whole - b.channels, 0.0f);
    }
  }
}

void DepthwiseWeightGradient::add_block(const Memory& m, const OpArgs& args, const DepthwiseGeometry::Block& b) const {
  geometry_.copy(m.copy, args.src[0].as<float>(), b);
  copy_diff(m.diff, args.diff_dst.as<float>(), b);
  const std::int64_t parts = (taps_ + depthwise::most_taps - 1) / depthwise::most_taps;
  for (std::int64_t c = 0; c < b.channels; c += lanes) {
    const depthwise::Pixels pixels{
        m.copy + c, m.diff + c, geometry_.pixel_step(), geometry_.row_step(), geometry_.channel_block(),
        b.rows,     b.width};
    float* sums = m.sums + (b.first_channel + c) * taps_;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t first = taps_ * part / parts, count = taps_ * (part + 1) / parts - first;
      depthwise::add_products(pixels, geometry_.taps().data() + first, count, sums + first * lanes);
    }
    float* bias = m.bias + b.first_channel + c;
    for (std::int64_t p = 0; p < b.rows * b.width && args.diff_weight[1]; ++p)
      for (std::int64_t l = 0; l < lanes; ++l) bias[l] += m.diff[p * geometry_.channel_block() + c + l];
  }
}

// From (panels, kernel..., 16 channels) to (C, kernel...). Adds up the sums of the threads in their order.
void DepthwiseWeightGradient::write(const OpArgs& args) const {
  const auto put = [&](int number, std::int64_t index, float sum) {
    float& value = args.diff_weight[number].as<float>()[index];
    value = args.mode[number] == GradMode::add ? value + sum : sum;
  };
  parallel_ranges(geometry_.panels(), 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t channels = std::min(end * lanes, geometry_.to()[4]);
    for (std::int64_t thread = 1; thread < threads_; ++thread) {
      const Memory first = memory_of(args, 0), other = memory_of(args, thread);
      add(first.sums + begin * taps_ * lanes, first.sums + begin * taps_ * lanes, other.sums + begin * taps_ * lanes,
          (end - begin) * taps_ * lanes);
      add(first.bias + begin * lanes, first.bias + begin * lanes, other.bias + begin * lanes, (end - begin) * lanes);
    }
    const Memory total = memory_of(args, 0);
    for (std::int64_t c = begin * lanes; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps_ && args.diff_weight[0]; ++t)
        put(0, c * taps_ + t, total.sums[(c / lanes * taps_ + t) * lanes + c % lanes]);
      if (args.diff_weight[1]) put(1, c, total.bias[c]);
    }
  });
}

void DepthwiseWeightGradient::run(const OpArgs& args) {
  parallel_ranges(threads_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread) {
      const Memory m = memory_of(args, thread);
      std::fill_n(m.sums, geometry_.panels() * taps_ * lanes, 0.0f);
      std::fill_n(m.bias, geometry_.panels() * lanes, 0.0f);
      const std::int64_t blocks = geometry_.blocks();
      for (std::int64_t i = blocks * thread / threads_; i < blocks * (thread + 1) / threads_; ++i)
        add_block(m, args, geometry_.block(i));
    }
  });
  write(args);
}

}  // namespace millrace::cpu
