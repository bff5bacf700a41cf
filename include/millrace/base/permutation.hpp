// Permutation: a pseudo-random order of n items as a pure function, in O(1) memory.
#pragma once
#include <array>
#include <cstdint>

#include "millrace/base/rng.hpp"

namespace millrace {

// A bijection of [0, n) keyed by (seed, purpose, epoch, part): a Feistel network over a rectangle of 2^k columns and
// just enough rows, walked until inside n (rare, as the rectangle has less than one row to spare). n up to 2^40.
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
