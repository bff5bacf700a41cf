#include "cpu/conv_variants/im2col.hpp"

#include <algorithm>
#include <cstring>

namespace millrace::cpu {
namespace {

using Point = std::array<std::int64_t, 3>;

bool reads_each_pixel_once(const ConvAxes& a) {
  return a.taps() == 1 && a.stride == Point{1, 1, 1} && a.pad == Point{0, 0, 0};
}

}  // namespace

Im2col::Im2col(const ConvSpec& s)
    : axes_(s),
      element_(std::int64_t(size_of(s.dtype))),
      rows_(axes_.dst[0] * axes_.dst[1] * axes_.dst[2] * axes_.dst[3]),
      depth_(axes_.taps() * axes_.src[4]),
      is_source_(reads_each_pixel_once(axes_)) {}

void Im2col::gather(const void* src, std::int64_t begin, std::int64_t end, void* to) const {
  const Shape &from = axes_.src, &out = axes_.dst;
  const std::int64_t image_bytes = from[1] * from[2] * from[3] * from[4] * element_;
  char* row = static_cast<char*>(to);
  for (std::int64_t i = begin; i < end; ++i, row += depth_ * element_) {
    const Point pixel{i / (out[3] * out[2]) % out[1], i / out[3] % out[2], i % out[3]};
    gather_row(static_cast<const char*>(src) + i / (out[1] * out[2] * out[3]) * image_bytes, pixel, row);
  }
}

// Taps along the last axis are adjacent in the source unless they are dilated.
void Im2col::gather_row(const char* image, const Point& pixel, char* to) const {
  const ConvAxes& a = axes_;
  const std::int64_t bytes = a.src[4] * element_, width = a.src[3], step = a.dilation[2];
  const std::int64_t x = pixel[2] * a.stride[2] - a.pad[2], taps = a.kernel[2];
  const std::int64_t left = std::clamp<std::int64_t>((step - 1 - x) / step, 0, taps),
                     right = std::clamp<std::int64_t>((width - x + step - 1) / step, left, taps);
  for (std::int64_t z = 0; z < a.kernel[0]; ++z)
    for (std::int64_t y = 0; y < a.kernel[1]; ++y, to += taps * bytes) {
      const std::int64_t at_z = pixel[0] * a.stride[0] - a.pad[0] + z * a.dilation[0],
                         at_y = pixel[1] * a.stride[1] - a.pad[1] + y * a.dilation[1];
      if (at_z < 0 || at_z >= a.src[1] || at_y < 0 || at_y >= a.src[2] || left == right) {
        std::memset(to, 0, std::size_t(taps * bytes));
        continue;
      }
      const char* from = image + ((at_z * a.src[2] + at_y) * width + x + left * step) * bytes;
      std::memset(to, 0, std::size_t(left * bytes));
      if (step == 1)
        std::memcpy(to + left * bytes, from, std::size_t((right - left) * bytes));
      else
        for (std::int64_t t = left; t < right; ++t)
          std::memcpy(to + t * bytes, from + (t - left) * step * bytes, std::size_t(bytes));
      std::memset(to + right * bytes, 0, std::size_t((taps - right) * bytes));
    }
}

}  // namespace millrace::cpu
