#include "cpu/matmul/float_matmul.hpp"

#include <algorithm>

#include "cpu/common/activation_kernels.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/matmul/tile_product.hpp"
#include "millrace/base/align.hpp"

namespace millrace::cpu {
namespace {

using namespace matmul;

// A block of a of row_block x depth_block elements stays in the second-level cache (96 KiB), a panel of b in the first
// (16 KiB), and column_block x depth_block elements of b in the third.
constexpr std::int64_t most_depth = 256, row_block = 16 * tile_rows, column_block = 32 * tile_columns;
constexpr std::int64_t most_by_rows = 64 << 10;

}  // namespace

bool FloatMatmul::available() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

FloatMatmul::FloatMatmul(const MatmulShape& shape, Activation activation, bool add, int threads)
    : shape_(shape), activation_(activation), add_(add), threads_(threads) {
  depth_block_ = ceil_div(shape.depth, ceil_div(shape.depth, most_depth));
  const std::int64_t columns = std::min(column_block, ceil_div(shape.columns, tile_columns) * tile_columns);
  const bool packs_rows = shape.a.row == 1 && shape.a.column != 1;
  part_scratch_ = align64(std::size_t((columns + (packs_rows ? row_block : 0)) * depth_block_) * sizeof(float));
}

std::size_t FloatMatmul::scratch_bytes() const { return part_scratch_ * std::size_t(threads_); }

void FloatMatmul::run(const void* a_numbers, const void* b_numbers, const float* bias, float* dst,
                      void* scratch) const {
  const auto *a = static_cast<const float*>(a_numbers), *b = static_cast<const float*>(b_numbers);
  if (threads_ == 1)
    return run_part({0, shape_.rows, 0, shape_.columns}, a, b, bias, dst, static_cast<float*>(scratch));
  const auto part_of_thread = [&](const Part& part) {
    run_part(part, a, b, bias, dst, static_cast<float*>(scratch) + part_scratch_ / sizeof(float) * thread_number());
  };
  if (shape_.rows >= shape_.columns)
    parallel_ranges(shape_.rows, 4 * tile_rows, [&](std::int64_t begin, std::int64_t end) {
      part_of_thread({begin, end, 0, shape_.columns});
    });
  else
    parallel_ranges(shape_.columns, 2 * tile_columns, [&](std::int64_t begin, std::int64_t end) {
      part_of_thread({0, shape_.rows, begin, end});
    });
}

void FloatMatmul::run_part(const Part& part, const float* a, const float* b, const float* bias, float* dst,
                           float* scratch) const {
  float* const packed_b = scratch;
  const bool packs_rows = shape_.a.row == 1 && shape_.a.column != 1;
  for (std::int64_t c0 = part.column_begin; c0 < part.column_end; c0 += column_block) {
    const std::int64_t columns = std::min(column_block, part.column_end - c0);
    // Few multiplications for each element of the result, as in gradients of weights with few rows: writing it is what
    // takes long, so a row of tiles is written as a whole. The columns of b must fit into the second-level cache.
    const bool by_rows = shape_.depth <= std::min(depth_block_, columns) && columns * shape_.depth <= most_by_rows;
    for (std::int64_t k0 = 0; k0 < shape_.depth; k0 += depth_block_) {
      const std::int64_t depth = std::min(depth_block_, shape_.depth - k0);
      for (std::int64_t c = 0; c < columns; c += tile_columns)
        pack_columns(packed_b + c * depth, b + k0 * shape_.b.row + (c0 + c) * shape_.b.column, shape_.b, depth,
                     std::min(tile_columns, columns - c));
      const Start start = k0 > 0 || add_ ? Start::dst : bias ? Start::bias : Start::zero;
      float* const packed_a = packed_b + ceil_div(columns, tile_columns) * tile_columns * depth;
      for (std::int64_t r0 = part.row_begin; r0 < part.row_end; r0 += row_block) {
        const std::int64_t rows = std::min(row_block, part.row_end - r0);
        const float* from = a + r0 * shape_.a.row + k0 * shape_.a.column;
        if (packs_rows)
          for (std::int64_t r = 0; r < rows; r += tile_rows)
            pack_rows(packed_a + r * depth, from + r, shape_.a.column, depth, std::min(tile_rows, rows - r));
        const auto tile = [&](std::int64_t r, std::int64_t c) {
          const std::int64_t tall = std::min(tile_rows, rows - r), wide = std::min(tile_columns, columns - c);
          const float* row = packs_rows ? packed_a + r * depth : from + r * shape_.a.row;
          const float* pointers[tile_rows];
          for (std::int64_t i = 0; i < tall; ++i) pointers[i] = row + i * (packs_rows ? 1 : shape_.a.row);
          const RowPanel panel{pointers, tall, 1, depth, packs_rows ? tile_rows : shape_.a.column};
          multiply_tile(panel, packed_b + c * depth, start, bias ? bias + c0 + c : nullptr,
                        dst + (r0 + r) * shape_.dst_width + c0 + c, shape_.dst_width, wide);
        };
        if (by_rows)
          for (std::int64_t r = 0; r < rows; r += tile_rows)
            for (std::int64_t c = 0; c < columns; c += tile_columns) tile(r, c);
        else
          for (std::int64_t c = 0; c < columns; c += tile_columns)
            for (std::int64_t r = 0; r < rows; r += tile_rows) tile(r, c);
        if (k0 + depth == shape_.depth)
          activate_rows(activation_, dst + r0 * shape_.dst_width + c0, shape_.dst_width, rows, columns);
      }
    }
  }
}

void activate_rows(Activation activation, float* dst, std::int64_t dst_width, std::int64_t rows, std::int64_t columns) {
  if (activation == Activation::none) return;
  const auto forward = activation_kernels(activation).forward;
  Tile sums;
  for (std::int64_t r = 0; r < rows; ++r, dst += dst_width) {
    std::copy_n(dst, columns, sums.v);
    forward(dst, sums, columns);
  }
}

}  // namespace millrace::cpu
