// What products and convolutions share that are written for AVX2: the product of a panel of up to 6 rows with a panel
// of 16 columns, and copies of blocks in the order in which it reads them. Attention and Winograd's filtering use
// TileKernels, which are also for AVX-512.
#pragma once
#include <cstdint>

#include "cpu/matmul/float_matmul.hpp"

namespace millrace::cpu::matmul {

constexpr std::int64_t tile_rows = 6, tile_columns = 16;

// A panel of rows. The depth consists of parts. Row r of part p is pointers[p * 6 + r][i * step], i < part_depth.
struct RowPanel {
  const float* const* pointers;
  std::int64_t rows;  // 1 to tile_rows
  std::int64_t parts, part_depth, step;
};
enum class Start { zero, bias, dst };  // what the product is added to

// dst[row * dst_width + column] = start + the sum over the depth of row[k] * b[k * 16 + column], for 1 to 16 columns. b
// always has 16.
void multiply_tile(const RowPanel&, const float* b, Start, const float* bias, float* dst, std::int64_t dst_width,
                   std::int64_t columns);

// to[k * width + column] = from(k, column) for depth x columns elements; further columns of the width become 0. For
// widths of 16 and 32.
template <std::int64_t width = tile_columns>
void pack_columns(float* to, const float* from, MatrixStrides strides, std::int64_t depth, std::int64_t columns);
// to[k * 6 + row] = from[row + k * stride] for rows x depth elements.
void pack_rows(float* to, const float* from, std::int64_t stride, std::int64_t depth, std::int64_t rows);

// Row r of the panel is row[r * strides.row + k * strides.column] for k < depth.
struct StridedPanel {
  const float* row;
  MatrixStrides strides;
  std::int64_t rows, depth;
};

// Tiles of 6 x 16 elements with AVX2, or of 12 x 32 with AVX-512.
struct TileKernels {
  const char* name;
  std::int64_t rows, columns;
  // dst[r * dst_width + c] = start + the sum over the depth of row r * b[k * columns + c], for c < count <= columns and
  // 1 to `rows` rows. start: zero or dst.
  void (*multiply)(const StridedPanel&, const float* b, Start, float* dst, std::int64_t dst_width, std::int64_t count);
  decltype(&pack_columns<>) pack;  // a panel of `columns`
};
extern const TileKernels narrow_tiles, wide_tiles;

}  // namespace millrace::cpu::matmul
