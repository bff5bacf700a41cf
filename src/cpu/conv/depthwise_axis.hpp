// Which taps of a depthwise convolution reach the outputs on one axis.
#pragma once
#include <cstdint>
#include <vector>

namespace millrace::cpu {

// Outputs whose coordinates have the same remainder by `classes` have the same taps. Output i * classes + q reads with
// tap t of class q at the coordinate i * step + t.shift of the source.
struct DepthwiseAxis {
  struct Tap {
    std::int64_t number, shift;
  };
  struct Extent {
    std::int64_t kernel, stride, pad, dilation;
  };

  std::int64_t step = 1, classes = 1, lowest = 0, highest = 0;  // of all shifts
  std::vector<std::vector<Tap>> taps;                           // of each class, by ascending shift

  // What the outputs [first, first + count) read, coordinates out of range included: at most `extent(count)`.
  std::int64_t begin(std::int64_t first) const { return first / classes * step + lowest; }
  std::int64_t end(std::int64_t first, std::int64_t count) const {
    return (first + count - 1) / classes * step + highest + 1;
  }
  std::int64_t extent(std::int64_t count) const {
    return (count + classes - 2) / classes * step + highest - lowest + 1;
  }

  static DepthwiseAxis forward(const Extent&);
  // The gradient of the source, which has `stride` classes of outputs.
  static DepthwiseAxis data(const Extent&);
};

}  // namespace millrace::cpu
