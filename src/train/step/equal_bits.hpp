// Finds out through a sum over all ranks whether they all have the same 32 bits.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace millrace {

// Each rank contributes the value and the square of each byte. The values of n ranks are equal exactly if n times the
// sum of squares is the square of the sum. Doubles hold these integers exactly for up to 100,000 ranks.
constexpr std::size_t equal_bits_terms = 8;

inline std::array<double, equal_bits_terms> equal_bits_contribution(std::uint32_t bits) {
  std::array<double, equal_bits_terms> out{};
  for (std::size_t b = 0; b < 4; ++b) {
    const double byte = (bits >> (8 * b)) & 0xff;
    out[2 * b] = byte;
    out[2 * b + 1] = byte * byte;
  }
  return out;
}

inline bool all_bits_equal(std::span<const double, equal_bits_terms> sums, int ranks) {
  for (std::size_t b = 0; b < 4; ++b)
    if (ranks * sums[2 * b + 1] != sums[2 * b] * sums[2 * b]) return false;
  return true;
}

}  // namespace millrace
