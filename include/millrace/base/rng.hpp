// Counter-based random numbers. Every number is a pure function of (seed, purpose, counters), so it does not depend on
// the rank, worker, thread or backend that computes it. The generator is Philox4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC'11). The header has no host-only code, because device kernels include it too.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define MR_HOST_DEVICE __host__ __device__
#else
#define MR_HOST_DEVICE
#endif

namespace millrace {

// The purpose of a stream of random numbers. It is part of the key, so streams of different purposes are independent.
// The values must not change, because they determine results.
enum class RngPurpose : std::uint32_t {
  shuffle = 1,
  pack = 2,
  init = 3,
  augment = 4,
  dropout = 5,
  synthetic = 6,
  split = 7,
  cutout = 8,
  jitter = 9,
  random_resized_crop = 10,
  blocks = 11,
  windows = 12,
  mix = 13,
  mix_kind = 14,
  subvolume = 16,
  generate = 24
};

struct Random4 {
  std::uint32_t v[4];
};

MR_HOST_DEVICE inline Random4 philox(std::uint64_t key, std::uint64_t counter_hi, std::uint64_t counter_lo) {
  std::uint32_t k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
  std::uint32_t c0 = std::uint32_t(counter_lo), c1 = std::uint32_t(counter_lo >> 32);
  std::uint32_t c2 = std::uint32_t(counter_hi), c3 = std::uint32_t(counter_hi >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t(0xD2511F53u) * c0, p1 = std::uint64_t(0xCD9E8D57u) * c2;
    const std::uint32_t n0 = std::uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = std::uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = std::uint32_t(p1);
    c3 = std::uint32_t(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The key of a stream: seed and purpose, mixed by the finalizer of splitmix64.
MR_HOST_DEVICE inline std::uint64_t rng_key(std::uint64_t seed, RngPurpose purpose) {
  std::uint64_t z = seed + 0x9E3779B97F4A7C15ull * (std::uint64_t(purpose) + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

MR_HOST_DEVICE inline float uniform01(std::uint32_t bits) { return float(bits >> 8) * (1.0f / 16777216.0f); }  // [0, 1)
MR_HOST_DEVICE inline std::uint32_t uniform_below(std::uint32_t bits, std::uint32_t n) {                       // [0, n)
  return std::uint32_t((std::uint64_t(bits) * n) >> 32);
}

}  // namespace millrace
