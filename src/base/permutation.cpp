#include "millrace/base/permutation.hpp"

#include <algorithm>
#include <bit>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

// The round function of the Feistel network, with a result of 32 bits.
std::uint64_t mix(std::uint64_t z) {
  z *= 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 32)) * 0x94D049BB133111EBull;
  return z >> 32;
}

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t n, RngPurpose purpose,
                         std::uint64_t part)
    : n_(n) {
  MR_CHECK(n >= 1 && n <= (std::uint64_t(1) << 40));
  for (std::size_t i = 0; i < keys_.size(); i += 2) {
    const Random4 r = philox(rng_key(seed, purpose), epoch, part << 3 | i);
    keys_[i] = std::uint64_t(r.v[0]) << 32 | r.v[1];
    keys_[i + 1] = std::uint64_t(r.v[2]) << 32 | r.v[3];
  }
  low_bits_ = std::max(2, int(std::bit_width(n - 1))) / 2;
  high_count_ = (n + (std::uint64_t(1) << low_bits_) - 1) >> low_bits_;
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  const std::uint64_t low_mask = (std::uint64_t(1) << low_bits_) - 1;
  std::uint64_t x = position;
  do {  // repeats the bijection of the rectangle until the result is below n
    std::uint64_t high = x >> low_bits_, low = x & low_mask;
    for (std::size_t round = 0; round < rounds; round += 2) {
      high += (mix(low ^ keys_[round]) * high_count_) >> 32;
      high -= high >= high_count_ ? high_count_ : 0;
      low ^= mix(high ^ keys_[round + 1]) & low_mask;
    }
    x = high << low_bits_ | low;
  } while (x >= n_);
  return x;
}

std::uint64_t Permutation::position_of(std::uint64_t value) const {
  const std::uint64_t low_mask = (std::uint64_t(1) << low_bits_) - 1;
  std::uint64_t x = value;
  do {  // repeats the inverse bijection
    std::uint64_t high = x >> low_bits_, low = x & low_mask;
    for (std::size_t round = rounds; round > 0; round -= 2) {
      low ^= mix(high ^ keys_[round - 1]) & low_mask;
      const std::uint64_t added = (mix(low ^ keys_[round - 2]) * high_count_) >> 32;
      high = high >= added ? high - added : high + high_count_ - added;
    }
    x = high << low_bits_ | low;
  } while (x >= n_);
  return x;
}

}  // namespace millrace
