#include "cpu/conv/kn2row_geometry.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/common/conv_axes.hpp"
#include "cpu/common/parallel.hpp"

namespace millrace::cpu {
namespace {

constexpr std::int64_t chunk_rows = 1024;

// Calls f(offset in the images, offset in the gathered rows, count) for each run of `count` adjacent pixels of a tap.
// Offsets and count are in pixels.
template <class F>
void for_runs(const Kn2rowGeometry& taps, Kn2rowGeometry::Side side, const Kn2rowGeometry::Tap& tap, std::int64_t image,
              std::int64_t begin, std::int64_t end, F f) {
  const Shape& s = taps.shape(side);
  const bool inputs = side == Kn2rowGeometry::Side::src;
  const auto& [depth, height, width] = tap.range;
  const auto first = [&](const Kn2rowGeometry::OutputRange& r) { return inputs ? r.input : r.first; };
  const auto step = [&](std::size_t axis) { return inputs ? taps.stride[axis] : 1; };
  std::int64_t row = begin * tap.rows;
  for (std::int64_t n = image + begin; n < image + end; ++n)
    for (std::int64_t z = 0; z < depth.count; ++z)
      for (std::int64_t y = 0; y < height.count; ++y) {
        const std::int64_t at_z = first(depth) + z * step(0), at_y = first(height) + y * step(1),
                           at = ((n * s[1] + at_z) * s[2] + at_y) * s[3] + first(width);
        if (step(2) == 1)
          f(at, row, width.count);
        else
          for (std::int64_t x = 0; x < width.count; ++x) f(at + x * step(2), row + x, std::int64_t{1});
        row += width.count;
      }
}

MR_TARGET_CLONES void add_values(float* __restrict to, const float* __restrict from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

Kn2rowGeometry::Kn2rowGeometry(const ConvSpec& s) : src(with_three_axes(s.src)), dst(with_three_axes(s.dst())) {
  const Window& w = s.window;
  const int front = 3 - w.rank;
  std::array<std::int64_t, 3> kernel{1, 1, 1};
  for (int a = 0; a < w.rank; ++a) {
    kernel[std::size_t(front + a)] = w.kernel[std::size_t(a)];
    stride[std::size_t(front + a)] = w.stride[std::size_t(a)];
  }
  const auto range = [&](int axis, std::int64_t k) {
    if (axis < front) return OutputRange{0, 1, 0};
    const auto a = std::size_t(axis - front);
    const std::int64_t step = w.stride[a], shift = k * w.dilation[a] - w.pad[a], in = src[1 + axis];
    const std::int64_t first = shift < 0 ? (-shift + step - 1) / step : 0;
    const std::int64_t end = in > shift ? std::min(dst[1 + axis], (in - shift + step - 1) / step) : 0;
    return OutputRange{first, std::max<std::int64_t>(0, end - first), first * step + shift};
  };
  for (std::int64_t z = 0; z < kernel[0]; ++z)
    for (std::int64_t y = 0; y < kernel[1]; ++y)
      for (std::int64_t x = 0; x < kernel[2]; ++x) {
        Tap tap{{range(0, z), range(1, y), range(2, x)}, 1};
        for (const OutputRange& r : tap.range) tap.rows *= r.count;
        max_rows = std::max(max_rows, tap.rows);
        all.push_back(tap);
      }
  const std::int64_t chunks = std::max<std::int64_t>(1, src[0] * pixels(Side::dst) / chunk_rows);
  chunk = (src[0] + chunks - 1) / chunks;
}

std::vector<std::int64_t> Kn2rowGeometry::row_counts() const {
  std::vector<std::int64_t> out;
  for (const Tap& tap : all)
    for (const std::int64_t images : {chunk, src[0] % chunk})
      if (images * tap.rows > 0) out.push_back(images * tap.rows);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool Kn2rowGeometry::covers_image(const Tap& tap, Side side) const {
  return tap.rows == pixels(side) && tap.rows == pixels(Side::dst);
}

void Kn2rowGeometry::gather(Side side, const Tap& tap, std::int64_t image, std::int64_t images, const char* from,
                            std::size_t element, char* to) const {
  const std::size_t pixel = std::size_t(shape(side)[-1]) * element;
  parallel_ranges(images, 1, [&](std::int64_t begin, std::int64_t end) {
    for_runs(*this, side, tap, image, begin, end, [&](std::int64_t at, std::int64_t row, std::int64_t count) {
      std::memcpy(to + std::size_t(row) * pixel, from + std::size_t(at) * pixel, std::size_t(count) * pixel);
    });
  });
}

void Kn2rowGeometry::scatter_add(Side side, const Tap& tap, std::int64_t images, const float* rows, float* to) const {
  const std::int64_t channels = shape(side)[-1];
  parallel_ranges(images, 1, [&](std::int64_t begin, std::int64_t end) {
    for_runs(*this, side, tap, 0, begin, end, [&](std::int64_t at, std::int64_t row, std::int64_t count) {
      add_values(to + at * channels, rows + row * channels, count * channels);
    });
  });
}

}  // namespace millrace::cpu
