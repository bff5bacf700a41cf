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
// An operand of fewer elements is packed by each part that reads it, which is shorter than a loop for all threads. So
// is one of more (16 MiB), such as the weights of a large vocabulary: the packed copy would stay in no cache.
constexpr std::int64_t least_shared = 16 << 10, most_shared = 4 << 20;

}  // namespace

bool FloatMatmul::available() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

FloatMatmul::FloatMatmul(const MatmulShape& shape, Activation activation, bool add, int threads)
    : shape_(shape),
      activation_(activation),
      add_(add),
      packs_rows_(shape.a.row == 1 && shape.a.column != 1),
      threads_(threads) {
  depth_block_ = ceil_div(shape.depth, ceil_div(shape.depth, most_depth));
  if (threads > 1) {
    const std::int64_t read_by_all = splits_rows() ? whole_columns() : packs_rows_ ? whole_rows() : 0;
    const std::int64_t elements = read_by_all * shape.depth;
    if (elements >= least_shared && elements <= most_shared) shared_ = elements;
  }
  const std::int64_t columns = shared_ > 0 && splits_rows() ? 0 : std::min(column_block, whole_columns()),
                     rows = !packs_rows_ || (shared_ > 0 && !splits_rows()) ? 0 : row_block;
  part_scratch_ = align64(std::size_t((columns + rows) * depth_block_) * sizeof(float));
}

std::size_t FloatMatmul::scratch_bytes() const {
  return align64(std::size_t(shared_) * sizeof(float)) + part_scratch_ * std::size_t(threads_);
}

bool FloatMatmul::splits_rows() const { return shape_.rows >= shape_.columns; }
std::int64_t FloatMatmul::whole_rows() const { return ceil_div(shape_.rows, tile_rows) * tile_rows; }
std::int64_t FloatMatmul::whole_columns() const { return ceil_div(shape_.columns, tile_columns) * tile_columns; }

void FloatMatmul::run(const void* a_numbers, const void* b_numbers, const float* bias, float* dst,
                      void* scratch) const {
  Operands operands{static_cast<const float*>(a_numbers), static_cast<const float*>(b_numbers), bias, dst};
  float* const own = static_cast<float*>(scratch) + align64(std::size_t(shared_) * sizeof(float)) / sizeof(float);
  if (threads_ == 1) return run_part({0, shape_.rows, 0, shape_.columns}, operands, own);
  if (shared_ > 0) pack_shared(operands, static_cast<float*>(scratch));
  const auto part_of_thread = [&](const Part& part) {
    run_part(part, operands, own + part_scratch_ / sizeof(float) * std::size_t(thread_number()));
  };
  if (splits_rows())
    parallel_ranges(shape_.rows, 4 * tile_rows, [&](std::int64_t begin, std::int64_t end) {
      part_of_thread({begin, end, 0, shape_.columns});
    });
  else
    parallel_ranges(shape_.columns, 2 * tile_columns, [&](std::int64_t begin, std::int64_t end) {
      part_of_thread({0, shape_.rows, begin, end});
    });
}

// Panel p of depth block k0 begins at element k0 * whole width + p * panel width * its depth.
void FloatMatmul::pack_shared(Operands& operands, float* to) const {
  const bool by_rows = splits_rows();
  const std::int64_t width = by_rows ? whole_columns() : whole_rows(), panel = by_rows ? tile_columns : tile_rows,
                     panels = width / panel;
  (by_rows ? operands.packed_b : operands.packed_a) = to;
  parallel_ranges(panels * ceil_div(shape_.depth, depth_block_), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t k0 = i / panels * depth_block_, at = i % panels * panel,
                         depth = std::min(depth_block_, shape_.depth - k0);
      if (by_rows)
        pack_b(to + k0 * width + at * depth, operands.b, {k0, depth}, {at, std::min(panel, shape_.columns - at)});
      else
        pack_a(to + k0 * width + at * depth, operands.a, {k0, depth}, {at, std::min(panel, shape_.rows - at)});
    }
  });
}

void FloatMatmul::pack_a(float* to, const float* a, Span depth, Span rows) const {
  const float* const from = a + rows.first * shape_.a.row + depth.first * shape_.a.column;
  for (std::int64_t r = 0; r < rows.count; r += tile_rows)
    pack_rows(to + r * depth.count, from + r, shape_.a.column, depth.count, std::min(tile_rows, rows.count - r));
}

void FloatMatmul::pack_b(float* to, const float* b, Span depth, Span columns) const {
  const float* const from = b + depth.first * shape_.b.row + columns.first * shape_.b.column;
  for (std::int64_t c = 0; c < columns.count; c += tile_columns)
    pack_columns(to + c * depth.count, from + c * shape_.b.column, shape_.b, depth.count,
                 std::min(tile_columns, columns.count - c));
}

void FloatMatmul::run_part(const Part& part, const Operands& operands, float* scratch) const {
  for (std::int64_t c0 = part.column_begin; c0 < part.column_end; c0 += column_block) {
    const Span columns{c0, std::min(column_block, part.column_end - c0)};
    for (std::int64_t k0 = 0; k0 < shape_.depth; k0 += depth_block_) {
      const Span depth{k0, std::min(depth_block_, shape_.depth - k0)};
      const float* panels = scratch;
      if (operands.packed_b)
        panels = operands.packed_b + k0 * whole_columns() + c0 * depth.count;
      else
        pack_b(scratch, operands.b, depth, columns);
      float* const packed_a =
          scratch + (operands.packed_b ? 0 : ceil_div(columns.count, tile_columns) * tile_columns * depth.count);
      for (std::int64_t r0 = part.row_begin; r0 < part.row_end; r0 += row_block) {
        const Span rows{r0, std::min(row_block, part.row_end - r0)};
        multiply(operands, {rows, columns, depth}, panels, packed_a);
      }
    }
  }
}

void FloatMatmul::multiply(const Operands& operands, const Block& block, const float* panels, float* scratch) const {
  const Span rows = block.rows, columns = block.columns, depth = block.depth;
  const float* from = operands.a + rows.first * shape_.a.row + depth.first * shape_.a.column;
  if (operands.packed_a) {
    from = operands.packed_a + depth.first * whole_rows() + rows.first * depth.count;
  } else if (packs_rows_) {
    pack_a(scratch, operands.a, depth, rows);
    from = scratch;
  }
  const MatrixStrides strides = packs_rows_ ? MatrixStrides{1, tile_rows} : shape_.a;
  const std::int64_t tile_step = packs_rows_ ? depth.count : shape_.a.row;  // from one row of tiles to the next, by row
  const float* const bias = operands.bias ? operands.bias + columns.first : nullptr;
  const Start start = depth.first > 0 || add_ ? Start::dst : bias ? Start::bias : Start::zero;
  float* const dst = operands.dst + rows.first * shape_.dst_width + columns.first;
  const auto tile = [&](std::int64_t r, std::int64_t c) {
    const std::int64_t tall = std::min(tile_rows, rows.count - r);
    const float* pointers[tile_rows];
    for (std::int64_t i = 0; i < tall; ++i) pointers[i] = from + r * tile_step + i * strides.row;
    multiply_tile({pointers, tall, 1, depth.count, strides.column}, panels + c * depth.count, start,
                  bias ? bias + c : nullptr, dst + r * shape_.dst_width + c, shape_.dst_width,
                  std::min(tile_columns, columns.count - c));
  };
  // Few multiplications for each element of the result, as in gradients of weights with few rows: writing it is what
  // takes long, so a row of tiles is written as a whole. The columns of b must fit into the second-level cache.
  if (shape_.depth <= std::min(depth_block_, columns.count) && columns.count * shape_.depth <= most_by_rows)
    for (std::int64_t r = 0; r < rows.count; r += tile_rows)
      for (std::int64_t c = 0; c < columns.count; c += tile_columns) tile(r, c);
  else
    for (std::int64_t c = 0; c < columns.count; c += tile_columns)
      for (std::int64_t r = 0; r < rows.count; r += tile_rows) tile(r, c);
  if (depth.first + depth.count == shape_.depth)
    activate_rows(activation_, dst, shape_.dst_width, rows.count, columns.count);
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
