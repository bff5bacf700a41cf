#include "sums.hpp"

#include <algorithm>
#include <cstring>

#include "millrace/base/clones.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::size_t block = 2048;  // elements: accumulators stay in the first-level cache

MR_CLONES void add(float* acc, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) acc[i] += from[i];
}
MR_CLONES void add_doubles(double* acc, const double* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) acc[i] += from[i];
}
MR_CLONES void widen_bf16(float* out, const bf16* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = float(from[i]);
}
MR_CLONES void add_bf16(float* acc, const bf16* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) acc[i] += float(from[i]);
}
MR_CLONES void round_bf16(bf16* out, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = bf16(from[i]);
}
void widen_f16(float* out, const f16* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = float(from[i]);
}
void add_f16(float* acc, const f16* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) acc[i] += float(from[i]);
}
void round_f16(f16* out, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = f16(from[i]);
}

// One block of the sum, as float32.
void accumulate(std::span<void* const> peers, std::size_t at, std::size_t n, DType dtype, float* acc) {
  for (std::size_t p = 0; p < peers.size(); ++p) {
    if (dtype == DType::f32) {
      const float* from = static_cast<const float*>(peers[p]) + at;
      p == 0 ? static_cast<void>(std::memcpy(acc, from, n * sizeof(float))) : add(acc, from, n);
    } else if (dtype == DType::bf16) {
      const bf16* from = static_cast<const bf16*>(peers[p]) + at;
      p == 0 ? widen_bf16(acc, from, n) : add_bf16(acc, from, n);
    } else {
      const f16* from = static_cast<const f16*>(peers[p]) + at;
      p == 0 ? widen_f16(acc, from, n) : add_f16(acc, from, n);
    }
  }
}

}  // namespace

void write_from_float(const float* sums, std::span<void* const> targets, std::size_t begin, std::size_t end,
                      DType dtype) {
  for (std::size_t at = begin; at < end; at += block) {
    const std::size_t n = std::min(block, end - at);
    const float* from = sums + (at - begin);
    for (void* target : targets) {
      if (dtype == DType::f32)
        std::memcpy(static_cast<float*>(target) + at, from, n * sizeof(float));
      else if (dtype == DType::bf16)
        round_bf16(static_cast<bf16*>(target) + at, from, n);
      else
        round_f16(static_cast<f16*>(target) + at, from, n);
    }
  }
}

void sum_peers_to_float(std::span<void* const> peers, std::size_t begin, std::size_t end, DType dtype, float* out) {
  for (std::size_t at = begin; at < end; at += block)
    accumulate(peers, at, std::min(block, end - at), dtype, out + (at - begin));
}

void sum_peers(std::span<void* const> peers, std::span<void* const> targets, std::size_t begin, std::size_t end,
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
