#include "comm/peer_reduction.hpp"

#include <algorithm>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/half.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace {
namespace {

constexpr std::size_t block = 2048;  // elements; the accumulators of a block stay in the L1 cache

MR_TARGET_CLONES void add(float* acc, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) acc[i] += from[i];
}
MR_TARGET_CLONES void add_doubles(double* acc, const double* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) acc[i] += from[i];
}

// The sum of n elements (at most one block), in float32.
void accumulate(std::span<void* const> peers, std::size_t at, std::size_t n, DType dtype, float* acc) {
  const auto from = [&](std::size_t p) { return static_cast<const std::byte*>(peers[p]) + at * size_of(dtype); };
  to_float(acc, from(0), dtype, std::int64_t(n));
  float wide[block];
  for (std::size_t p = 1; p < peers.size(); ++p) {
    const void* next = from(p);
    if (dtype != DType::f32) {
      to_float(wide, next, dtype, std::int64_t(n));
      next = wide;
    }
    add(acc, static_cast<const float*>(next), n);
  }
}

}  // namespace

void write_from_float(const float* sums, std::span<void* const> targets, std::size_t begin, std::size_t end,
                      DType dtype) {
  for (std::size_t at = begin; at < end; at += block) {
    const std::size_t n = std::min(block, end - at);
    for (void* target : targets)
      from_float(static_cast<std::byte*>(target) + at * size_of(dtype), dtype, sums + (at - begin), std::int64_t(n));
  }
}

void reduce_peers_to_float(std::span<void* const> peers, std::size_t begin, std::size_t end, DType dtype, float* out) {
  for (std::size_t at = begin; at < end; at += block)
    accumulate(peers, at, std::min(block, end - at), dtype, out + (at - begin));
}

void reduce_peers(std::span<void* const> peers, std::span<void* const> targets, std::size_t begin, std::size_t end,
                  DType dtype) {
  if (dtype == DType::f64) {
    double acc[block];
    for (std::size_t at = begin; at < end; at += block) {
      const std::size_t n = std::min(block, end - at);
      std::memcpy(acc, static_cast<const double*>(peers[0]) + at, n * sizeof(double));
      for (std::size_t p = 1; p < peers.size(); ++p) add_doubles(acc, static_cast<const double*>(peers[p]) + at, n);
      for (void* target : targets) std::memcpy(static_cast<double*>(target) + at, acc, n * sizeof(double));
    }
    return;
  }
  MR_CHECK(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16);
  float acc[block];
  for (std::size_t at = begin; at < end; at += block) {
    const std::size_t n = std::min(block, end - at);
    accumulate(peers, at, n, dtype, acc);
    write_from_float(acc, targets, at, at + n, dtype);
  }
}

}  // namespace millrace
