#include "half.hpp"

#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "parallel.hpp"

namespace millrace::cpu {
namespace {

MR_SIMD void widen(float* __restrict dst, const bf16* __restrict src, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) dst[i] = load(src + i);
}
MR_SIMD void narrow(bf16* __restrict dst, const float* __restrict src, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(dst + i, src[i]);
}

// The processor's own half conversions, eight at a time; they return how many they did. Same rounding as f16's
// functions.
#ifdef __x86_64__
__attribute__((target("avx,f16c"))) std::int64_t widen_f16c(float* dst, const f16* src, std::int64_t count) {
  const std::int64_t whole = count / 8 * 8;
  for (std::int64_t i = 0; i < whole; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  return whole;
}
__attribute__((target("avx,f16c"))) std::int64_t narrow_f16c(f16* dst, const float* src, std::int64_t count) {
  const std::int64_t whole = count / 8 * 8;
  for (std::int64_t i = 0; i < whole; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  return whole;
}
const bool have_f16c = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
#else
std::int64_t widen_f16c(float*, const f16*, std::int64_t) { return 0; }
std::int64_t narrow_f16c(f16*, const float*, std::int64_t) { return 0; }
constexpr bool have_f16c = false;
#endif

}  // namespace

void to_float(float* dst, const void* src, DType dtype, std::int64_t count) {
  if (dtype == DType::f32) {
    std::memcpy(dst, src, std::size_t(count) * sizeof(float));
  } else if (dtype == DType::bf16) {
    widen(dst, static_cast<const bf16*>(src), count);
  } else {
    MR_CHECK(dtype == DType::f16);
    const auto* half = static_cast<const f16*>(src);
    for (std::int64_t i = have_f16c ? widen_f16c(dst, half, count) : 0; i < count; ++i) dst[i] = load(half + i);
  }
}

void from_float(void* dst, DType dtype, const float* src, std::int64_t count) {
  if (dtype == DType::f32) {
    std::memcpy(dst, src, std::size_t(count) * sizeof(float));
  } else if (dtype == DType::bf16) {
    narrow(static_cast<bf16*>(dst), src, count);
  } else {
    MR_CHECK(dtype == DType::f16);
    auto* half = static_cast<f16*>(dst);
    for (std::int64_t i = have_f16c ? narrow_f16c(half, src, count) : 0; i < count; ++i) store(half + i, src[i]);
  }
}

void convert(void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count) {
  const std::size_t to = size_of(dst_type), from = size_of(src_type);
  parallel_ranges(count, 16384, [&](std::int64_t begin, std::int64_t end) {
    auto* d = static_cast<std::byte*>(dst) + std::size_t(begin) * to;
    const auto* s = static_cast<const std::byte*>(src) + std::size_t(begin) * from;
    if (dst_type == src_type) {
      std::memcpy(d, s, std::size_t(end - begin) * to);
    } else if (dst_type == DType::f32) {
      to_float(reinterpret_cast<float*>(d), s, src_type, end - begin);
    } else if (src_type == DType::f32) {
      from_float(d, dst_type, reinterpret_cast<const float*>(s), end - begin);
    } else {
      float piece[1024];
      for (std::int64_t at = 0; at < end - begin; at += 1024) {
        const std::int64_t n = std::min<std::int64_t>(1024, end - begin - at);
        to_float(piece, s + std::size_t(at) * from, src_type, n);
        from_float(d + std::size_t(at) * to, dst_type, piece, n);
      }
    }
  });
}

}  // namespace millrace::cpu
