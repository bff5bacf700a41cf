// Computes philox() of base/rng.hpp for many consecutive counters at once, four words per lane. There are enough lanes
// that the compiler keeps the loops and vectorises them.
#pragma once
#include "millrace/base/rng.hpp"

namespace millrace::cpu {

constexpr int draw_lanes = 64;
struct Draws {
  std::uint32_t v[4][draw_lanes];
};
__attribute__((always_inline)) inline void philox_lanes(Draws& d, std::uint64_t key, std::uint64_t counter_hi,
                                                        std::uint64_t counter_lo) {
  for (int l = 0; l < draw_lanes; ++l) {
    d.v[0][l] = std::uint32_t(counter_lo);
    d.v[1][l] = std::uint32_t(counter_lo >> 32);
    d.v[2][l] = std::uint32_t(counter_hi) + std::uint32_t(l);
    d.v[3][l] = std::uint32_t(counter_hi >> 32);
  }
  std::uint32_t k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
  const std::uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
    for (int l = 0; l < draw_lanes; ++l) {
      const std::uint32_t a = d.v[0][l], b = d.v[2][l];
      const std::uint32_t high0 = std::uint32_t(std::uint64_t(m0) * a >> 32);
      const std::uint32_t high1 = std::uint32_t(std::uint64_t(m1) * b >> 32);
      d.v[0][l] = high1 ^ d.v[1][l] ^ k0;
      d.v[2][l] = high0 ^ d.v[3][l] ^ k1;
      d.v[1][l] = m1 * b;
      d.v[3][l] = m0 * a;
    }
}

}  // namespace millrace::cpu
