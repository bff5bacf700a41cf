#include <algorithm>
#include <cstring>

#include "cpu/common/half.hpp"
#include "cpu/conv/depthwise_geometry.hpp"
#include "millrace/base/align.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace::cpu {

namespace {

using depthwise::lanes;

template <class T>
__attribute__((always_inline)) inline void copy_of(float* __restrict to, std::int64_t panel, const T* __restrict from,
                                                   std::int64_t step, std::int64_t pixels, std::int64_t channels) {
  const std::int64_t whole = channels / lanes * lanes;
  for (std::int64_t p = 0; p < pixels; ++p, from += step, to += lanes) {
    float* __restrict at = to;
    for (std::int64_t c = 0; c < whole; c += lanes, at += panel)
      for (std::int64_t l = 0; l < lanes; ++l) at[l] = load(from + c + l);
    if (whole == channels) continue;
    for (std::int64_t l = 0; l < lanes; ++l) at[l] = whole + l < channels ? load(from + whole + l) : 0.0f;
  }
}
MR_TARGET_CLONES void copy_floats(float* to, std::int64_t panel, const float* from, std::int64_t step,
                                  std::int64_t pixels, std::int64_t channels) {
  copy_of(to, panel, from, step, pixels, channels);
}
MR_TARGET_CLONES void copy_bf16(float* to, std::int64_t panel, const bf16* from, std::int64_t step, std::int64_t pixels,
                                std::int64_t channels) {
  copy_of(to, panel, from, step, pixels, channels);
}

std::size_t runs_at(const DepthwiseGeometry& g) {
  return align64(std::size_t(g.depths() * g.rows() * g.row_elements()) * sizeof(float));
}
std::size_t counts_at(const DepthwiseGeometry& g) {
  const std::size_t rows = std::size_t(DepthwiseGeometry::band) * g.row_classes().size();
  return runs_at(g) + align64(rows * std::size_t(g.most_runs()) * sizeof(depthwise::Run));
}

}  // namespace

void copy_pixels(float* to, std::int64_t panel, const Tensor& from, std::int64_t at, std::int64_t step,
                 std::int64_t pixels, std::int64_t channels) {
  if (from.dtype == DType::f32)
    copy_floats(to, panel, from.as<float>() + at, step, pixels, channels);
  else
    copy_bf16(to, panel, from.as<bf16>() + at, step, pixels, channels);
}

void store_pixels(const Tensor& to, std::int64_t at, std::int64_t step, float* from, std::int64_t pixels,
                  std::int64_t channels) {
  bf16* const rounded = reinterpret_cast<bf16*>(from + pixels * lanes);
  from_float(rounded, DType::bf16, from, pixels * lanes);
  bf16* out = to.as<bf16>() + at;
  for (std::int64_t p = 0; p < pixels; ++p, out += step)
    if (channels == lanes)
      std::memcpy(out, rounded + p * lanes, lanes * sizeof(bf16));
    else
      std::copy_n(rounded + p * lanes, channels, out);
}

std::size_t DepthwiseRows::bytes(const DepthwiseGeometry& g) {
  return counts_at(g) + align64(std::size_t(DepthwiseGeometry::band) * g.row_classes().size() * sizeof(std::int64_t));
}

DepthwiseRows::DepthwiseRows(const DepthwiseGeometry& g, const DepthwiseGeometry::Task& t, const Tensor& from,
                             void* memory)
    : geometry_(g), task_(t), from_(from), rows_(static_cast<float*>(memory)), next_(0) {
  auto* bytes = static_cast<std::byte*>(memory);
  runs_ = reinterpret_cast<depthwise::Run*>(bytes + runs_at(g));
  run_counts_ = reinterpret_cast<std::int64_t*>(bytes + counts_at(g));
}

// Row y of depth z of the source, for the channels and the columns of the task.
void DepthwiseRows::copy(float* to, std::int64_t z, std::int64_t y) const {
  const Shape& from = geometry_.from();
  const std::int64_t begin = geometry_.axis(2).begin(task_.x), panel = geometry_.width() * lanes;
  const std::int64_t first = std::clamp<std::int64_t>(-begin, 0, geometry_.width()),
                     last = std::clamp<std::int64_t>(from[3] - begin, first, geometry_.width());
  for (std::int64_t c = 0; c < task_.channels; c += lanes) {
    float* row = to + c / lanes * panel;
    std::fill(row, row + first * lanes, 0.0f);
    std::fill(row + last * lanes, row + panel, 0.0f);
  }
  const std::int64_t pixel = ((task_.image * from[1] + z) * from[2] + y) * from[3] + begin + first;
  copy_pixels(to + first * lanes, panel, from_, pixel * from[4] + task_.first_channel, from[4], last - first,
              task_.channels);
}

void DepthwiseRows::read(std::int64_t y, std::int64_t count) {
  const DepthwiseAxis &depth = geometry_.axis(0), &height = geometry_.axis(1);
  const auto& depths = depth.taps[std::size_t(task_.z % depth.classes)];
  const std::int64_t begin = std::max(height.begin(y), next_),
                     end = std::min(height.end(y, count), geometry_.from()[2]);
  for (std::size_t d = 0; d < depths.size(); ++d) {
    const std::int64_t z = task_.z / depth.classes * depth.step + depths[d].shift;
    for (std::int64_t r = begin; r < end && z >= 0 && z < geometry_.from()[1]; ++r)
      copy(const_cast<float*>(copied(std::int64_t(d), r)), z, r);
  }
  next_ = std::max(begin, end);
  const std::size_t classes = geometry_.row_classes().size();
  for (std::int64_t r = y; r < y + count; ++r)
    for (std::size_t q = 0; q < classes; ++q)
      find_runs(r, q, r % DepthwiseGeometry::band * std::int64_t(classes) + std::int64_t(q));
}

// Of the outputs of one class in row y. Taps that reach padding only are left out.
void DepthwiseRows::find_runs(std::int64_t y, std::size_t row_class, std::int64_t at) {
  const DepthwiseAxis &depth = geometry_.axis(0), &height = geometry_.axis(1);
  const auto& depths = depth.taps[std::size_t(task_.z % depth.classes)];
  depthwise::Run* out = runs_ + at * geometry_.most_runs();
  depthwise::Run* const first = out;
  for (std::size_t d = 0; d < depths.size(); ++d) {
    const std::int64_t z = task_.z / depth.classes * depth.step + depths[d].shift;
    if (z < 0 || z >= geometry_.from()[1]) continue;
    for (const DepthwiseAxis::Tap& tap : height.taps[std::size_t(y % height.classes)]) {
      const std::int64_t r = y / height.classes * height.step + tap.shift;
      if (r < 0 || r >= geometry_.from()[2]) continue;
      const std::int64_t row = depths[d].number * geometry_.kernel_rows() + tap.number;
      for (const auto& run : geometry_.row_classes()[row_class].runs)
        *out++ = {copied(std::int64_t(d), r) + run.column * lanes,
                  row * std::int64_t(geometry_.row_taps().size()) + run.number};
    }
  }
  run_counts_[at] = out - first;
}

}  // namespace millrace::cpu
