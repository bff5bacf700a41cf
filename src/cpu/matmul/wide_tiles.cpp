// Tiles of 12 rows and 32 columns for AVX-512.
#include "cpu/matmul/tile_product.hpp"
#include "millrace/base/error.hpp"
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace millrace::cpu::matmul {
namespace {

constexpr std::int64_t wide_rows = 12, wide_columns = 32;

#ifdef __x86_64__
// 24 sums, two vectors of b and one of a: 27 of 32 registers. Twelve rows need 24 multiplications for 14 loads.
// vectors: of columns; one suffices for 16.
template <int rows, int vectors>
__attribute__((target("avx512f"))) void multiply_rows(const StridedPanel& a, const float* b, Start start, float* dst,
                                                      std::int64_t dst_width, std::int64_t count) {
  __m512 sum[rows][vectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sum[r][v] = _mm512_setzero_ps();
  const std::int64_t stride = a.strides.row, step = a.strides.column;
  const float* row = a.row;
  for (std::int64_t k = 0; k < a.depth; ++k, b += wide_columns, row += step) {
    const __m512 left = _mm512_loadu_ps(b), right = vectors > 1 ? _mm512_loadu_ps(b + 16) : left;
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const __m512 value = _mm512_set1_ps(row[r * stride]);
      sum[r][0] = _mm512_fmadd_ps(value, left, sum[r][0]);
      if (vectors > 1) sum[r][vectors - 1] = _mm512_fmadd_ps(value, right, sum[r][vectors - 1]);
    }
  }
  const std::uint32_t mask = count == wide_columns ? ~0u : (1u << count) - 1;
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
void multiply_vectors(const StridedPanel& a, const float* b, Start start, float* dst, std::int64_t dst_width,
                      std::int64_t count) {
  using Rows = decltype(&multiply_rows<1, vectors>);
  constexpr Rows functions[] = {&multiply_rows<1, vectors>,  &multiply_rows<2, vectors>,  &multiply_rows<3, vectors>,
                                &multiply_rows<4, vectors>,  &multiply_rows<5, vectors>,  &multiply_rows<6, vectors>,
                                &multiply_rows<7, vectors>,  &multiply_rows<8, vectors>,  &multiply_rows<9, vectors>,
                                &multiply_rows<10, vectors>, &multiply_rows<11, vectors>, &multiply_rows<12, vectors>};
  functions[a.rows - 1](a, b, start, dst, dst_width, count);
}

void multiply(const StridedPanel& a, const float* b, Start start, float* dst, std::int64_t dst_width,
              std::int64_t count) {
  if (count <= 16)
    multiply_vectors<1>(a, b, start, dst, dst_width, count);
  else
    multiply_vectors<2>(a, b, start, dst, dst_width, count);
}
#else
void multiply(const StridedPanel&, const float*, Start, float*, std::int64_t, std::int64_t) {
  fail(Exit::internal, "internal error: a product for AVX-512 on a processor without it. ask tile_kernels() first");
}
#endif

}  // namespace

const TileKernels wide_tiles{"avx512", wide_rows, wide_columns, &multiply, &pack_columns<wide_columns>};

}  // namespace millrace::cpu::matmul
