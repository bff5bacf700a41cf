#include "cpu/matmul/half_matmul.hpp"

#include <algorithm>

#include "cpu/common/tile.hpp"
#include "cpu/matmul/amx_tiles.hpp"

namespace millrace::cpu {
namespace {

using amx::block, amx::tile_numbers, amx::whole_blocks;

constexpr std::int64_t step = 2 * tile_numbers;  // numbers of one operand
// A panel of each operand takes at most 512 KiB of the second-level cache.
constexpr std::int64_t panel_depth = 512, panel_width = 512;

#ifdef __x86_64__
using amx::Wholes;

// 16 columns of two rows.
MR_AMX inline Wholes load_pairs(const bf16* numbers, std::int64_t stride) {
  return amx::pairs(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers)),
                    _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers + stride)));
}
MR_AMX inline void store(bf16* to, Wholes numbers) { _mm512_storeu_si512(to, (__m512i)numbers); }

// 32 numbers along the depth, of 32 columns.
MR_AMX void pack_columns(bf16* to, const bf16* from, std::int64_t stride) {
  for (std::int64_t tile = 0; tile < 2; ++tile)
    for (std::int64_t pair = 0; pair < 16; ++pair, to += 32)
      store(to, load_pairs(from + 2 * pair * stride + 16 * tile, stride));
}

// Of each part of four numbers: the lower or upper two of both, by turns (of one or of two numbers).
MR_AMX inline Wholes low(Wholes a, Wholes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
MR_AMX inline Wholes high(Wholes a, Wholes b) {
  return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
MR_AMX inline Wholes low_two(Wholes a, Wholes b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
MR_AMX inline Wholes high_two(Wholes a, Wholes b) {
  return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
// The even or odd ones of the parts of four numbers.
MR_AMX inline Wholes even(Wholes a, Wholes b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
MR_AMX inline Wholes odd(Wholes a, Wholes b) {
  return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

// The same, transposed: 16 pairs of a column are a row of a tile.
MR_AMX void pack_rows(bf16* to, const bf16* from, std::int64_t stride) {
  for (std::int64_t tile = 0; tile < 2; ++tile, to += tile_numbers) {
    Wholes row[16];
#pragma GCC unroll 16
    for (int pair = 0; pair < 16; ++pair) row[pair] = load_pairs(from + 2 * pair * stride + 16 * tile, stride);
#pragma GCC unroll 4
    for (int r = 0; r < 16; r += 4) {  // part p of row r + c becomes numbers r to r + 3 of column 4 p + c
      const Wholes low01 = low(row[r], row[r + 1]), high01 = high(row[r], row[r + 1]);
      const Wholes low23 = low(row[r + 2], row[r + 3]), high23 = high(row[r + 2], row[r + 3]);
      row[r] = low_two(low01, low23);
      row[r + 1] = high_two(low01, low23);
      row[r + 2] = low_two(high01, high23);
      row[r + 3] = high_two(high01, high23);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const Wholes top_even = even(row[c], row[4 + c]), bottom_even = even(row[8 + c], row[12 + c]);
      const Wholes top_odd = odd(row[c], row[4 + c]), bottom_odd = odd(row[8 + c], row[12 + c]);
      store(to + 32 * c, even(top_even, bottom_even));
      store(to + 32 * (4 + c), even(top_odd, bottom_odd));
      store(to + 32 * (8 + c), odd(top_even, bottom_even));
      store(to + 32 * (12 + c), odd(top_odd, bottom_odd));
    }
  }
}

// dst (32 x 32) = the product of `steps` steps, or dst += it if add.
MR_AMX void multiply_block(const bf16* a, const bf16* b, float* dst, std::int64_t dst_width, std::int64_t steps,
                           bool add) {
  const std::int64_t bytes = dst_width * std::int64_t(sizeof(float));
  float* const lower = dst + 16 * dst_width;
  if (add) {
    _tile_loadd(0, dst, bytes);
    _tile_loadd(1, dst + 16, bytes);
    _tile_loadd(2, lower, bytes);
    _tile_loadd(3, lower + 16, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t s = 0; s < steps; ++s, a += step, b += step) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + tile_numbers, 64);
    _tile_loadd(5, a + tile_numbers, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, dst, bytes);
  _tile_stored(1, dst + 16, bytes);
  _tile_stored(2, lower, bytes);
  _tile_stored(3, lower + 16, bytes);
}
#else
void pack_columns(bf16*, const bf16*, std::int64_t) {}
void pack_rows(bf16*, const bf16*, std::int64_t) {}
void multiply_block(const bf16*, const bf16*, float*, std::int64_t, std::int64_t, bool) {}
#endif

// Up to 32 numbers along the depth, of up to 32 columns. Missing ones become 0.
void pack_block(decltype(pack_columns) pack, bf16* to, const bf16* from, std::int64_t stride, std::int64_t depth,
                std::int64_t columns) {
  if (depth >= block && columns >= block) return pack(to, from, stride);
  alignas(64) bf16 numbers[block * block] = {};
  columns = std::min(columns, block);
  for (std::int64_t k = 0; k < std::min(depth, block); ++k)
    std::copy_n(from + k * stride, columns, numbers + k * block);
  pack(to, numbers, block);
}

// `columns` columns from `from` on, by blocks of columns; the steps of a block follow each other. Packs 32 rows of all
// blocks before the next 32, so memory is read in order.
void pack_panel(decltype(pack_columns) pack, bf16* to, const bf16* from, std::int64_t stride, std::int64_t depth,
                std::int64_t columns) {
  const std::int64_t steps = whole_blocks(depth) / block;
  for (std::int64_t s = 0; s < steps; ++s)
    for (std::int64_t c = 0; c < columns; c += block)
      pack_block(pack, to + (c / block * steps + s) * step, from + s * block * stride + c, stride, depth - s * block,
                 columns - c);
}

}  // namespace

bool HalfMatmul::suits(const MatmulShape& s) {
  return s.depth >= 128 && s.rows >= 64 && s.columns >= 64 && s.a.row == 1 && s.b.column == 1;
}

HalfMatmul::HalfMatmul(const MatmulShape& shape, bool add, int threads) : shape_(shape), add_(add), threads_(threads) {
  depth_block_ = whole_blocks(ceil_div(shape.depth, ceil_div(shape.depth, panel_depth)));
  panel_rows_ = std::min(panel_width, whole_blocks(shape.rows));
  panel_columns_ = std::min(panel_width, whole_blocks(shape.columns));
  part_scratch_ = align64(std::size_t((panel_rows_ + panel_columns_) * depth_block_) * sizeof(bf16));
}

std::size_t HalfMatmul::scratch_bytes() const { return part_scratch_ * std::size_t(threads_); }

void HalfMatmul::run(const void* a_numbers, const void* b_numbers, const float*, float* dst, void* scratch) const {
  const auto *a = static_cast<const bf16*>(a_numbers), *b = static_cast<const bf16*>(b_numbers);
  if (threads_ == 1) return run_part({0, shape_.rows, 0, shape_.columns}, a, b, dst, static_cast<bf16*>(scratch));
  const bool by_rows = shape_.rows >= shape_.columns;
  const std::int64_t count = by_rows ? shape_.rows : shape_.columns;
  const std::int64_t blocks = whole_blocks(count) / block;
  parallel_ranges(blocks, ceil_div(blocks, std::int64_t(threads_)), [&](std::int64_t begin, std::int64_t end) {
    begin *= block;
    end = std::min(end * block, count);
    bf16* const own = static_cast<bf16*>(scratch) + part_scratch_ / sizeof(bf16) * std::size_t(thread_number());
    run_part(by_rows ? Part{begin, end, 0, shape_.columns} : Part{0, shape_.rows, begin, end}, a, b, dst, own);
  });
}

void HalfMatmul::run_part(const Part& all, const bf16* a, const bf16* b, float* dst, bf16* scratch) const {
  bf16* const columns_at = scratch + panel_rows_ * depth_block_;
  amx::configure_tiles();
  for (std::int64_t k = 0; k < shape_.depth; k += depth_block_) {
    const std::int64_t depth = std::min(depth_block_, shape_.depth - k), steps = whole_blocks(depth) / block;
    for (std::int64_t c = all.column_begin; c < all.column_end; c += panel_columns_) {
      const std::int64_t columns_end = std::min(c + panel_columns_, all.column_end);
      pack_panel(pack_columns, columns_at, b + k * shape_.b.row + c, shape_.b.row, depth, columns_end - c);
      for (std::int64_t r = all.row_begin; r < all.row_end; r += panel_rows_) {
        const std::int64_t rows_end = std::min(r + panel_rows_, all.row_end);
        const bool packed = c > all.column_begin && all.row_end - all.row_begin <= panel_rows_;
        if (!packed) pack_panel(pack_rows, scratch, a + k * shape_.a.column + r, shape_.a.column, depth, rows_end - r);
        multiply({r, rows_end, c, columns_end}, scratch, columns_at, steps, k == 0 && !add_, dst);
      }
    }
  }
  amx::release_tiles();
}

// The products of two packed panels.
void HalfMatmul::multiply(const Part& part, const bf16* rows, const bf16* columns, std::int64_t steps, bool starts,
                          float* dst) const {
  for (std::int64_t r = part.row_begin; r < part.row_end; r += block)
    for (std::int64_t c = part.column_begin; c < part.column_end; c += block) {
      const bf16 *a = rows + (r - part.row_begin) / block * steps * step,
                 *b = columns + (c - part.column_begin) / block * steps * step;
      const std::int64_t high = std::min(block, part.row_end - r), wide = std::min(block, part.column_end - c);
      float* const to = dst + r * shape_.dst_width + c;
      if (high == block && wide == block) {
        multiply_block(a, b, to, shape_.dst_width, steps, !starts);
        continue;
      }
      alignas(64) float product[block * block];
      multiply_block(a, b, product, block, steps, false);
      for (std::int64_t i = 0; i < high; ++i) {
        float* const row = to + i * shape_.dst_width;
        starts ? (void)std::copy_n(product + i * block, wide, row) : add(row, row, product + i * block, wide);
      }
    }
}

}  // namespace millrace::cpu
