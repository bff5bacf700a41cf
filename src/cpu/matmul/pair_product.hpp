// Products of bf16 matrices for AVX-512 with bf16, in tiles of up to 12 rows and 32 columns. An instruction multiplies
// two elements along the depth at once, so pairs of them lie side by side.
#pragma once
#include <cstdint>

#include "cpu/matmul/tile_product.hpp"
#include "millrace/base/types.hpp"

namespace millrace::cpu::matmul {

constexpr std::int64_t pair_rows = 12, pair_columns = 32;

// Pair k of row r is row[r * row_stride + k * pair_stride] and the element behind it, for r < rows and k < pairs.
struct PairPanel {
  const bf16* row;
  std::int64_t row_stride, pair_stride;
  std::int64_t rows, pairs;  // rows: 1 to pair_rows
};

// dst[r * dst_width + c] = start + the sum over the pairs k and both elements e of row r * b[(k * 32 + c) * 2 + e], in
// float32, for c < count <= 32. start: zero or dst. Only for processors with AVX-512 and bf16.
void multiply_pairs(const PairPanel&, const bf16* b, Start, float* dst, std::int64_t dst_width, std::int64_t count);

// to[2 * i] = first[i] and to[2 * i + 1] = second[i], or 0 if second is null, for i < count.
void interleave(bf16* __restrict to, const bf16* __restrict first, const bf16* __restrict second, std::int64_t count);

}  // namespace millrace::cpu::matmul
