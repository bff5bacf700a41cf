// Division by a number that is known before the launch, as the divisions of indices are. A GPU has no instruction for a
// division.
#pragma once
#include "cuda/block/block.hpp"

namespace millrace::cuda {

// Computes n / divisor for n < 2^31 with a multiplication instead of a division.
struct Divider {
  std::uint32_t divisor = 1, magic = 1;
  int shift = 0;
  Divider() = default;
  explicit Divider(std::int64_t d) : divisor(std::uint32_t(d)) {
    while (std::int64_t(1) << shift < d) ++shift;
    magic = std::uint32_t((((std::uint64_t(1) << shift) - std::uint64_t(d)) << 32) / std::uint64_t(d) + 1);
  }
  MR_DEVICE_INLINE int operator()(int n) const {
    const std::uint32_t high = std::uint32_t((std::uint64_t(std::uint32_t(n)) * magic) >> 32);
    return int((high + std::uint32_t(n)) >> shift);
  }
  MR_DEVICE_INLINE int up(int n) const { return (*this)(n + int(divisor) - 1); }
  MR_DEVICE_INLINE int split(int& n) const {  // returns the quotient; n becomes the remainder
    const int quotient = (*this)(n);
    n -= quotient * int(divisor);
    return quotient;
  }
};

}  // namespace millrace::cuda
