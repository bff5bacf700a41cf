#include "millrace/base/half.hpp"

#include <cstring>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "millrace/base/error.hpp"
#include "millrace/base/target_clones.hpp"

namespace millrace {
namespace {

MR_TARGET_CLONES void widen(float* __restrict dst, const bf16* __restrict src, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) dst[i] = float(src[i]);
}

// Conversions with vector instructions. They process whole vectors only, and return the number of converted values.
#ifdef __x86_64__
// Returns bf16 values in the low halves of the 32-bit lanes.
__attribute__((target("avx2"))) inline __m256i rounded_bf16(const float* from) {
  const __m256 value = _mm256_loadu_ps(from);
  const __m256i u = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
}
__attribute__((target("avx2"))) std::int64_t narrow_avx2(bf16* dst, const float* src, std::int64_t count) {
  const std::int64_t whole = count / 16 * 16;
  for (std::int64_t i = 0; i < whole; i += 16) {
    const __m256i lanes = _mm256_packus_epi32(rounded_bf16(src + i), rounded_bf16(src + i + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i), _mm256_permute4x64_epi64(lanes, 0xd8));
  }
  return whole;
}
// The instruction takes denormal numbers for 0, so those are left to narrow_avx2().
__attribute__((target("avx512f,avx512dq,avx512bf16"))) std::int64_t narrow_avx512(bf16* dst, const float* src,
                                                                                  std::int64_t count) {
  const std::int64_t whole = count / 16 * 16;
  for (std::int64_t i = 0; i < whole; i += 16) {
    const __m512 value = _mm512_loadu_ps(src + i);
    if (_mm512_fpclass_ps_mask(value, 0x20)) [[unlikely]]
      narrow_avx2(dst + i, src + i, 16);
    else
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i), (__m256i)_mm512_cvtneps_pbh(value));
  }
  return whole;
}
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
const auto narrow_bf16 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512dq") ? narrow_avx512
                         : __builtin_cpu_supports("avx2")                                           ? narrow_avx2
                                                                                                    : nullptr;
// Uses cpuid, because __builtin_cpu_supports of clang 14 does not know f16c.
const bool have_f16c = [] {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}();
#else
std::int64_t widen_f16c(float*, const f16*, std::int64_t) { return 0; }
std::int64_t narrow_f16c(f16*, const float*, std::int64_t) { return 0; }
constexpr std::int64_t (*narrow_bf16)(bf16*, const float*, std::int64_t) = nullptr;
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
    for (std::int64_t i = have_f16c ? widen_f16c(dst, half, count) : 0; i < count; ++i) dst[i] = float(half[i]);
  }
}

void from_float(void* dst, DType dtype, const float* src, std::int64_t count) {
  if (dtype == DType::f32) {
    std::memcpy(dst, src, std::size_t(count) * sizeof(float));
  } else if (dtype == DType::bf16) {
    auto* half = static_cast<bf16*>(dst);
    for (std::int64_t i = narrow_bf16 ? narrow_bf16(half, src, count) : 0; i < count; ++i) half[i] = bf16(src[i]);
  } else {
    MR_CHECK(dtype == DType::f16);
    auto* half = static_cast<f16*>(dst);
    for (std::int64_t i = have_f16c ? narrow_f16c(half, src, count) : 0; i < count; ++i) half[i] = f16(src[i]);
  }
}

}  // namespace millrace
