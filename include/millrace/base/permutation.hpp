// Permutation: a pseudo-random order of n items in O(1) memory, computed by a pure function.
#pragma once
#include <array>
#include <cstdint>

#include "millrace/base/rng.hpp"

namespace millrace {

// A bijection of [0, n) with the key (seed, purpose, epoch, part). n is at most 2^40. It is a Feistel network on a
// rectangle with 2^k columns and as many rows as n needs. A result outside [0, n) is permuted again, which is rare,
// because less than one row of the rectangle is unused.
class Permutation {
 public:
  Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t n, RngPurpose purpose = RngPurpose::shuffle,
              std::uint64_t part = 0);
  std::uint64_t operator()(std::uint64_t position) const;
  std::uint64_t position_of(std::uint64_t value) const;  // the inverse

 private:
  static constexpr int rounds = 6;
  std::array<std::uint64_t, rounds> keys_;
  std::uint64_t n_, high_count_;
  int low_bits_;
};

}  // namespace millrace
