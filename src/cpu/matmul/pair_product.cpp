#include "cpu/matmul/pair_product.hpp"

#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/target_clones.hpp"
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace millrace::cpu::matmul {

#ifdef __x86_64__
namespace {

// 24 sums, two vectors of b and one of a: 27 of 32 registers. vectors: of columns; one suffices for 16.
template <int rows, int vectors>
__attribute__((target("avx512f,avx512bf16"))) void multiply_pair_rows(const PairPanel& a, const bf16* b, Start start,
                                                                      float* dst, std::int64_t dst_width,
                                                                      std::int64_t count) {
  __m512 sum[rows][vectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_setzero_ps();
  const std::int64_t stride = a.row_stride, step = a.pair_stride;
  const bf16* row = a.row;
  for (std::int64_t k = 0; k < a.pairs; ++k, b += 2 * pair_columns, row += step) {
    const __m512i left = _mm512_loadu_si512(b), right = vectors > 1 ? _mm512_loadu_si512(b + pair_columns) : left;
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      std::int32_t pair;
      std::memcpy(&pair, row + r * stride, sizeof pair);
      const __m512i value = _mm512_set1_epi32(pair);
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], (__m512bh)value, (__m512bh)left);
      if (vectors > 1) sum[r][vectors - 1] = _mm512_dpbf16_ps(sum[r][vectors - 1], (__m512bh)value, (__m512bh)right);
    }
  }
  const std::uint32_t mask = count == pair_columns ? ~0u : (1u << count) - 1;
  const __mmask16 masks[2] = {__mmask16(mask), __mmask16(mask >> 16)};
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int half = 0; half < vectors; ++half) {
      float* const to = dst + r * dst_width + 16 * half;
      if (start == Start::dst) sum[r][half] = _mm512_add_ps(sum[r][half], _mm512_maskz_loadu_ps(masks[half], to));
      _mm512_mask_storeu_ps(to, masks[half], sum[r][half]);
    }
}

template <int vectors>
void multiply_pair_vectors(const PairPanel& a, const bf16* b, Start start, float* dst, std::int64_t dst_width,
                           std::int64_t count) {
  using Rows = decltype(&multiply_pair_rows<1, vectors>);
  constexpr Rows functions[] = {
      &multiply_pair_rows<1, vectors>,  &multiply_pair_rows<2, vectors>,  &multiply_pair_rows<3, vectors>,
      &multiply_pair_rows<4, vectors>,  &multiply_pair_rows<5, vectors>,  &multiply_pair_rows<6, vectors>,
      &multiply_pair_rows<7, vectors>,  &multiply_pair_rows<8, vectors>,  &multiply_pair_rows<9, vectors>,
      &multiply_pair_rows<10, vectors>, &multiply_pair_rows<11, vectors>, &multiply_pair_rows<12, vectors>};
  functions[a.rows - 1](a, b, start, dst, dst_width, count);
}

}  // namespace

void multiply_pairs(const PairPanel& a, const bf16* b, Start start, float* dst, std::int64_t dst_width,
                    std::int64_t count) {
  if (count <= 16)
    multiply_pair_vectors<1>(a, b, start, dst, dst_width, count);
  else
    multiply_pair_vectors<2>(a, b, start, dst, dst_width, count);
}
#else
void multiply_pairs(const PairPanel&, const bf16*, Start, float*, std::int64_t, std::int64_t) {
  fail(Exit::internal, "internal error: a product for AVX-512 with bf16 on a processor without it. ask has_pairs()");
}
#endif

// As words of 32 bits, because the compiler shuffles single elements.
MR_TARGET_CLONES void interleave(bf16* __restrict to, const bf16* __restrict first, const bf16* __restrict second,
                                 std::int64_t count) {
  typedef std::uint32_t Word __attribute__((may_alias, aligned(alignof(bf16))));
  Word* const words = reinterpret_cast<Word*>(to);
  if (second)
    for (std::int64_t i = 0; i < count; ++i) words[i] = std::uint32_t(second[i].bits) << 16 | first[i].bits;
  else
    for (std::int64_t i = 0; i < count; ++i) words[i] = first[i].bits;
}

}  // namespace millrace::cpu::matmul
