#include "cpu/matmul/tile_product.hpp"

#include <algorithm>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/target_clones.hpp"
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace millrace::cpu::matmul {

#ifdef __x86_64__
#define MR_AVX2 __attribute__((target("avx2,fma")))

namespace {

// 12 sums, two vectors of b and one of a: 15 of 16 registers. Six rows need 12 multiplications for 8 loads.
// vectors: for each row. One holds up to 8 columns, two hold up to 16.
template <int rows, int vectors>
MR_AVX2 void multiply(const RowPanel& a, const float* b, Start start, const float* bias, float* dst,
                      std::int64_t dst_width, std::int64_t columns) {
  __m256 sum[rows][vectors];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sum[r][v] = _mm256_setzero_ps();
  const std::int64_t end = a.part_depth * a.step, step = a.step;
  for (std::int64_t p = 0; p < a.parts; ++p) {
    const float* row[rows];
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) row[r] = a.pointers[p * tile_rows + r];
    for (std::int64_t i = 0; i != end; i += step, b += tile_columns) {
      const __m256 left = _mm256_loadu_ps(b), right = vectors > 1 ? _mm256_loadu_ps(b + 8) : left;
#pragma GCC unroll 6
      for (int r = 0; r < rows; ++r) {
        const __m256 value = _mm256_broadcast_ss(row[r] + i);
        sum[r][0] = _mm256_fmadd_ps(value, left, sum[r][0]);
        if (vectors > 1) sum[r][vectors - 1] = _mm256_fmadd_ps(value, right, sum[r][vectors - 1]);
      }
    }
  }
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      float* const to = dst + r * dst_width + 8 * v;
      const float* const from = start == Start::bias ? bias + 8 * v : to;
      if (columns >= 8 * (v + 1)) {
        if (start != Start::zero) sum[r][v] = _mm256_add_ps(sum[r][v], _mm256_loadu_ps(from));
        _mm256_storeu_ps(to, sum[r][v]);
        continue;
      }
      const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(int(columns) - 8 * v), lanes);
      if (start != Start::zero) sum[r][v] = _mm256_add_ps(sum[r][v], _mm256_maskload_ps(from, mask));
      _mm256_maskstore_ps(to, mask, sum[r][v]);
    }
}

// Turns 8 x 8 elements: to[k * width + i] = from[i * stride + k].
template <std::int64_t width>
MR_AVX2 void turn(float* to, const float* from, std::int64_t stride) {
  __m256 in[8], pairs[8], fours[8];
  for (int i = 0; i < 8; ++i) in[i] = _mm256_loadu_ps(from + i * stride);
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(in[i], in[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(in[i], in[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int half = 0; half < 2; ++half) {
      fours[i + 2 * half] = _mm256_shuffle_ps(pairs[i + half], pairs[i + half + 2], 0x44);
      fours[i + 2 * half + 1] = _mm256_shuffle_ps(pairs[i + half], pairs[i + half + 2], 0xee);
    }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * width, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * width, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
  }
}

}  // namespace

void multiply_tile(const RowPanel& a, const float* b, Start start, const float* bias, float* dst,
                   std::int64_t dst_width, std::int64_t columns) {
  using Multiply = decltype(&multiply<1, 1>);
  constexpr Multiply few[] = {&multiply<1, 1>, &multiply<2, 1>, &multiply<3, 1>,
                              &multiply<4, 1>, &multiply<5, 1>, &multiply<6, 1>},
                     functions[] = {&multiply<1, 2>, &multiply<2, 2>, &multiply<3, 2>,
                                    &multiply<4, 2>, &multiply<5, 2>, &multiply<6, 2>};
  (columns <= 8 ? few : functions)[a.rows - 1](a, b, start, bias, dst, dst_width, columns);
}
#else
namespace {
template <std::int64_t width>
void turn(float* to, const float* from, std::int64_t stride) {
  for (int i = 0; i < 8; ++i)
    for (int k = 0; k < 8; ++k) to[k * width + i] = from[i * stride + k];
}
}  // namespace
void multiply_tile(const RowPanel&, const float*, Start, const float*, float*, std::int64_t, std::int64_t) {
  fail(Exit::internal,
       "internal error: a product for AVX2 on a processor without it. ask FloatMatmul::available() first");
}
#endif

namespace {

// to[k * width + column] = from[k * stride + column]
template <std::int64_t width>
__attribute__((always_inline)) inline void copy_panel(float* __restrict to, const float* __restrict from,
                                                      std::int64_t stride, std::int64_t depth) {
  for (std::int64_t k = 0; k < depth; ++k) std::memcpy(to + k * width, from + k * stride, width * sizeof(float));
}
MR_TARGET_CLONES void copy_narrow_panel(float* to, const float* from, std::int64_t stride, std::int64_t depth) {
  copy_panel<tile_columns>(to, from, stride, depth);
}
MR_TARGET_CLONES void copy_wide_panel(float* to, const float* from, std::int64_t stride, std::int64_t depth) {
  copy_panel<2 * tile_columns>(to, from, stride, depth);
}

}  // namespace

template <std::int64_t width>
void pack_columns(float* to, const float* from, MatrixStrides strides, std::int64_t depth, std::int64_t columns) {
  if (columns == width && strides.column == 1)
    return (width == tile_columns ? copy_narrow_panel : copy_wide_panel)(to, from, strides.row, depth);
  // Whole squares of 8 x 8 elements, then the rest of their columns, then the other columns.
  const std::int64_t turned = strides.row == 1 ? columns / 8 * 8 : 0, turned_depth = depth / 8 * 8;
  for (std::int64_t k = 0; k < turned_depth; k += 8)
    for (std::int64_t c = 0; c < turned; c += 8)
      turn<width>(to + k * width + c, from + k + c * strides.column, strides.column);
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t k = c < turned ? turned_depth : 0; k < depth; ++k)
      to[k * width + c] = from[k * strides.row + c * strides.column];
  if (columns < width)
    for (std::int64_t k = 0; k < depth; ++k) std::fill(to + k * width + columns, to + (k + 1) * width, 0.0f);
}
template void pack_columns<tile_columns>(float*, const float*, MatrixStrides, std::int64_t, std::int64_t);
template void pack_columns<2 * tile_columns>(float*, const float*, MatrixStrides, std::int64_t, std::int64_t);

void pack_rows(float* to, const float* from, std::int64_t stride, std::int64_t depth, std::int64_t rows) {
  if (rows < tile_rows) {
    for (std::int64_t k = 0; k < depth; ++k) std::copy_n(from + k * stride, rows, to + k * tile_rows);
    return;
  }
  for (std::int64_t k = 0; k < depth; ++k)  // the compiler makes a call of std::copy_n
    std::memcpy(to + k * tile_rows, from + k * stride, tile_rows * sizeof(float));
}

const TileKernels narrow_tiles{
    "avx2", tile_rows, tile_columns,
    [](const StridedPanel& a, const float* b, Start start, float* dst, std::int64_t dst_width, std::int64_t count) {
      const float* pointers[tile_rows];
      for (std::int64_t r = 0; r < a.rows; ++r) pointers[r] = a.row + r * a.strides.row;
      multiply_tile({pointers, a.rows, 1, a.depth, a.strides.column}, b, start, nullptr, dst, dst_width, count);
    },
    &pack_columns<>};

}  // namespace millrace::cpu::matmul
