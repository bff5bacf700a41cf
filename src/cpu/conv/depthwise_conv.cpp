#include "cpu/conv/depthwise_conv.hpp"

#include <algorithm>

#include "cpu/common/half.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

using depthwise::lanes;

namespace {

constexpr std::size_t bytes_of_sum = sizeof(float) + sizeof(bf16);  // and of what it is rounded to

}  // namespace

DepthwiseConv::DepthwiseConv(const ConvSpec& s, Of of, MemoryRequirements& needs)
    : geometry_(s, of),
      of_(of),
      weights_at_(needs.packed_weights),
      rows_bytes_(DepthwiseRows::bytes(geometry_)),
      thread_bytes_(rows_bytes_ + (s.dtype == DType::f32
                                       ? 0
                                       : align64(std::size_t(geometry_.block_width() * lanes) * bytes_of_sum))) {
  needs.packed_weights += align64(std::size_t(geometry_.panels() * geometry_.taps() * lanes) * sizeof(float));
}

std::size_t DepthwiseConv::workspace() const { return thread_bytes_ * std::size_t(thread_count()); }

// From (C, kernel...) to (panels, kernel..., 16 channels), with the taps of each row in the order of row_taps().
void DepthwiseConv::repack(const OpArgs& args) {
  float* to = static_cast<float*>(at(args.packed_weights, weights_at_));
  const auto width = std::int64_t(geometry_.row_taps().size()), rows = geometry_.taps() / width;
  dispatch_dtype(args.weight[0].dtype, [&](auto zero) {
    const auto* from = args.weight[0].as<decltype(zero)>();
    for (std::int64_t first = 0; first < geometry_.panels() * lanes; first += lanes)
      for (std::int64_t row = 0; row < rows; ++row)
        for (const std::int64_t tap : geometry_.row_taps())
          for (std::int64_t c = first; c < first + lanes; ++c)
            *to++ = c < geometry_.to()[4] ? load(from + (c * rows + row) * width + tap) : 0.0f;
  });
}

void DepthwiseConv::run_task(const DepthwiseGeometry::Task& t, const OpArgs& args, void* memory) const {
  const bool forward = of_ == Of::forward;
  DepthwiseRows rows(geometry_, t, forward ? args.src[0] : args.diff_dst, memory);
  const float* bias = forward && args.weight[1] ? args.weight[1].as<float>() + t.first_channel : nullptr;
  const float* weights =
      static_cast<const float*>(at(args.packed_weights, weights_at_)) + t.first_channel * geometry_.taps();
  const Tensor& to = forward ? args.dst : args.diff_src[0];
  const Shape& shape = geometry_.to();
  const std::int64_t step = std::int64_t(geometry_.row_classes().size()) * shape[4];  // between outputs of a class
  for (std::int64_t y = t.y; y < t.y + t.rows; y += DepthwiseGeometry::band) {
    const std::int64_t count = std::min(DepthwiseGeometry::band, t.y + t.rows - y);
    rows.read(y, count);
    for (std::int64_t c = 0; c < t.channels; c += lanes) {
      float start[lanes] = {};
      if (bias) std::copy_n(bias + c, std::min(lanes, t.channels - c), start);
      const auto convolve = [&](const auto& row, const auto& kernels, float* sums, std::int64_t sums_step) {
        kernels.convolve(row, weights + c * geometry_.taps(), bias ? start : nullptr, sums, sums_step);
      };
      for (std::int64_t r = y; r < y + count; ++r) {
        const std::int64_t first =
            ((t.image * shape[1] + t.z) * shape[2] + r) * shape[3] * shape[4] + t.first_channel + c;
        rows.for_classes(r, c / lanes, [&](const auto& row, const auto& kernels, std::int64_t x) {
          if (to.dtype == DType::f32) return convolve(row, kernels, to.as<float>() + first + x * shape[4], step);
          float* const sums = static_cast<float*>(at(memory, rows_bytes_));
          convolve(row, kernels, sums, lanes);
          store_pixels(to, first + x * shape[4], step, sums, row.pixels, row.channels);
        });
      }
    }
  }
}

void DepthwiseConv::run(const OpArgs& args) {
  parallel_ranges(geometry_.tasks(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      run_task(geometry_.task(i), args, at(args.workspace, thread_bytes_ * std::size_t(thread_number())));
  });
}

}  // namespace millrace::cpu
