// Extents of a sliding window in one to three spatial dimensions. Unused entries keep their defaults.
#pragma once
#include <array>
#include <cstdint>

namespace millrace {

struct Window {
  int rank = 2;  // spatial dimensions in use
  // `pad` applies to both sides.
  std::array<std::int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, pad{0, 0, 0}, dilation{1, 1, 1};
  // The output extent of an axis with input extent `in`.
  std::int64_t out(int axis, std::int64_t in) const {
    return (in + 2 * pad[axis] - dilation[axis] * (kernel[axis] - 1) - 1) / stride[axis] + 1;
  }
  bool operator==(const Window&) const = default;
};

}  // namespace millrace
