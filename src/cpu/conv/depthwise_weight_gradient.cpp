#include "cpu/conv/depthwise_weight_gradient.hpp"

#include <algorithm>

#include "cpu/common/parallel.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/onednn/onednn_op.hpp"

namespace millrace::cpu {

namespace {

using depthwise::lanes;

std::size_t bytes_of(std::int64_t floats) { return align64(std::size_t(floats) * sizeof(float)); }

}  // namespace

DepthwiseWeightGradient::DepthwiseWeightGradient(const ConvSpec& s) : geometry_(s, Of::forward) {
  threads_ = std::min<std::int64_t>(thread_count(), geometry_.tasks());
  diff_at_ = DepthwiseRows::bytes(geometry_);
  sums_at_ = diff_at_ + (s.dtype == DType::f32 ? 0 : bytes_of(geometry_.block_width() * lanes));
  bias_at_ = sums_at_ + bytes_of(geometry_.panels() * geometry_.taps() * lanes);
  thread_bytes_ = bias_at_ + bytes_of(geometry_.panels() * lanes);
}

DepthwiseWeightGradient::Memory DepthwiseWeightGradient::memory_of(const OpArgs& args, std::int64_t thread) const {
  void* base = at(args.workspace, thread_bytes_ * std::size_t(thread));
  return {base, static_cast<float*>(at(base, diff_at_)), static_cast<float*>(at(base, sums_at_)),
          static_cast<float*>(at(base, bias_at_))};
}

void DepthwiseWeightGradient::add_task(const Memory& m, const OpArgs& args, const DepthwiseGeometry::Task& t) const {
  DepthwiseRows rows(geometry_, t, args.src[0], m.rows);
  const Shape& shape = geometry_.to();
  const bool in_place = args.diff_dst.dtype == DType::f32;
  for (std::int64_t y = t.y; y < t.y + t.rows; y += DepthwiseGeometry::band) {
    const std::int64_t count = std::min(DepthwiseGeometry::band, t.y + t.rows - y);
    rows.read(y, count);
    for (std::int64_t c = 0; c < t.channels; c += lanes)
      for (std::int64_t r = y; r < y + count; ++r) {
        const std::int64_t pixel = ((t.image * shape[1] + t.z) * shape[2] + r) * shape[3] + t.x,
                           first = pixel * shape[4] + t.first_channel + c, channels = std::min(lanes, t.channels - c);
        if (!in_place) copy_pixels(m.diff, 0, args.diff_dst, first, shape[4], t.width, channels);
        const float* diff = in_place ? args.diff_dst.as<float>() + first : m.diff;
        const std::int64_t step = in_place ? shape[4] : lanes;
        rows.for_classes(r, c / lanes, [&](const auto& row, const auto& kernels, std::int64_t) {
          kernels.add_products(row, diff, step, m.sums + (t.first_channel + c) * geometry_.taps());
        });
        if (!args.diff_weight[1]) continue;
        float* bias = m.bias + t.first_channel + c;
        for (std::int64_t x = 0; x < t.width; ++x) add(bias, bias, diff + x * step, channels);
      }
  }
}

// From (panels, kernel..., 16 channels) to (C, kernel...). Adds up the sums of the threads in their order.
void DepthwiseWeightGradient::write(const OpArgs& args) const {
  const std::int64_t taps = geometry_.taps();
  const auto put = [&](int number, std::int64_t index, float sum) {
    float& value = args.diff_weight[number].as<float>()[index];
    value = args.mode[number] == GradMode::add ? value + sum : sum;
  };
  parallel_ranges(geometry_.panels(), 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t channels = std::min(end * lanes, geometry_.to()[4]);
    const Memory total = memory_of(args, 0);
    for (std::int64_t thread = 1; thread < threads_; ++thread) {
      const Memory other = memory_of(args, thread);
      add(total.sums + begin * taps * lanes, total.sums + begin * taps * lanes, other.sums + begin * taps * lanes,
          (end - begin) * taps * lanes);
      add(total.bias + begin * lanes, total.bias + begin * lanes, other.bias + begin * lanes, (end - begin) * lanes);
    }
    for (std::int64_t c = begin * lanes; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps && args.diff_weight[0]; ++t)
        put(0, c * taps + t, total.sums[(c / lanes * taps + t) * lanes + c % lanes]);
      if (args.diff_weight[1]) put(1, c, total.bias[c]);
    }
  });
}

void DepthwiseWeightGradient::run(const OpArgs& args) {
  parallel_ranges(threads_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread) {
      const Memory m = memory_of(args, thread);
      std::fill_n(m.sums, geometry_.panels() * geometry_.taps() * lanes, 0.0f);
      std::fill_n(m.bias, geometry_.panels() * lanes, 0.0f);
      const std::int64_t tasks = geometry_.tasks();
      for (std::int64_t i = tasks * thread / threads_; i < tasks * (thread + 1) / threads_; ++i)
        add_task(m, args, geometry_.task(i));
    }
  });
  write(args);
}

}  // namespace millrace::cpu
