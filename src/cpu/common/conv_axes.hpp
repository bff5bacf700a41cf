// The extents of a convolution with three spatial axes. Missing leading axes have an extent of 1.
#pragma once
#include <array>

#include "millrace/ops/conv.hpp"

namespace millrace::cpu {

Shape with_three_axes(const Shape&);  // (N, depth, height, width, channels)

struct ConvAxes {
  explicit ConvAxes(const ConvSpec&);

  Shape src, dst;
  std::array<std::int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, pad{0, 0, 0}, dilation{1, 1, 1};

  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  std::array<std::int64_t, 3> tap(std::int64_t number) const {
    return {number / (kernel[1] * kernel[2]), number / kernel[2] % kernel[1], number % kernel[2]};
  }
};

}  // namespace millrace::cpu
