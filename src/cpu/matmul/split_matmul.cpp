#include "cpu/matmul/split_matmul.hpp"

#include <algorithm>

#include "cpu/common/activation_kernels.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/matmul/amx_tiles.hpp"
#include "cpu/matmul/tile_product.hpp"

namespace millrace::cpu {
namespace {

using amx::block, amx::tile_numbers, amx::whole_blocks;

// A step has three parts of each number: 12 tiles of 1 KiB. They lie in the order part, tile, row (or pair of rows),
// column.
constexpr std::int64_t step_numbers = 6 * tile_numbers;
// The parts of depth_block x widest numbers of b take at most 768 KiB of the second-level cache.
constexpr std::int64_t deepest = 512, widest = 256;

#ifdef __x86_64__
// x = part[0] + part[1] + part[2], nearly.
MR_AMX inline void split(__m512 x, __m256i* part) {
#pragma GCC unroll 3
  for (int p = 0; p < 3; ++p) {
    part[p] = (__m256i)_mm512_cvtneps_pbh(x);
    x = _mm512_sub_ps(x, (__m512)(amx::widen(part[p]) << 16));
  }
}

// 32 rows of 32 numbers along the depth.
MR_AMX void split_rows(bf16* to, const float* from, std::int64_t stride) {
  for (std::int64_t r = 0; r < block; ++r, to += 32)
    for (std::int64_t half = 0; half < 2; ++half) {
      __m256i part[3];
      split(_mm512_loadu_ps(from + r * stride + 16 * half), part);
#pragma GCC unroll 3
      for (int p = 0; p < 3; ++p)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * p * tile_numbers + 16 * half), part[p]);
    }
}
// 32 numbers along the depth, of 32 columns.
MR_AMX void split_columns(bf16* to, const float* from, std::int64_t stride) {
  for (std::int64_t tile = 0; tile < 2; ++tile)
    for (std::int64_t pair = 0; pair < 16; ++pair, to += 32) {
      const float* const numbers = from + 2 * pair * stride + 16 * tile;
      __m256i first[3], second[3];
      split(_mm512_loadu_ps(numbers), first);
      split(_mm512_loadu_ps(numbers + stride), second);
#pragma GCC unroll 3
      for (int p = 0; p < 3; ++p)
        _mm512_storeu_si512(to + 2 * p * tile_numbers, (__m512i)amx::pairs(first[p], second[p]));
    }
}

// dst (32 x 32) = the product of `steps` steps, small products first.
MR_AMX void multiply_block(const bf16* a, const bf16* b, float* dst, std::int64_t dst_width, std::int64_t steps) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t s = 0; s < steps; ++s, a += step_numbers, b += step_numbers) {
    const auto rows = [a](int part) MR_AMX {
      _tile_loadd(4, a + 2 * part * tile_numbers, 64);
      _tile_loadd(5, a + (2 * part + 1) * tile_numbers, 64);
    };
    const auto columns = [b](int part) MR_AMX {
      _tile_loadd(6, b + 2 * part * tile_numbers, 64);
      _tile_loadd(7, b + (2 * part + 1) * tile_numbers, 64);
    };
    const auto multiply = []() MR_AMX {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    };
    rows(2);
    columns(0);
    multiply();
    rows(1);
    multiply();
    columns(1);
    multiply();
    rows(0);
    multiply();
    columns(2);
    multiply();
    columns(0);
    multiply();
  }
  const std::int64_t bytes = dst_width * std::int64_t(sizeof(float));
  _tile_stored(0, dst, bytes);
  _tile_stored(1, dst + 16, bytes);
  _tile_stored(2, dst + 16 * dst_width, bytes);
  _tile_stored(3, dst + 16 * dst_width + 16, bytes);
}
#else
void split_rows(bf16*, const float*, std::int64_t) {}
void split_columns(bf16*, const float*, std::int64_t) {}
void multiply_block(const bf16*, const bf16*, float*, std::int64_t, std::int64_t) {}
#endif

// A block of up to 32 x 32 numbers that is filled up with 0.
struct Source {
  const float* at;
  MatrixStrides strides;
  std::int64_t rows, columns;
};
// Calls split(to, numbers, stride) for the block, whose columns lie side by side, in place or in a copy.
void split_block(decltype(split_rows) split, bf16* to, const Source& from) {
  if (from.strides.column == 1 && from.rows >= block && from.columns >= block)
    return split(to, from.at, from.strides.row);
  alignas(64) float numbers[block * block];
  const std::int64_t rows = std::min(from.rows, block);
  matmul::pack_columns<block>(numbers, from.at, from.strides, rows, std::min(from.columns, block));
  std::fill(numbers + rows * block, numbers + block * block, 0.0f);
  split(to, numbers, block);
}

// dst (rows x columns) = start + product, whose rows have 32 numbers. start: dst, or else bias (null: 0).
void add_block(float* dst, std::int64_t dst_width, const float* product, std::int64_t rows, std::int64_t columns,
               bool starts, const float* bias) {
  for (std::int64_t r = 0; r < rows; ++r, dst += dst_width, product += block) {
    if (!starts || bias)
      add(dst, starts ? bias : dst, product, columns);
    else
      std::copy_n(product, columns, dst);
  }
}

}  // namespace

bool SplitMatmul::suits(const MatmulShape& s) {
  return s.depth >= 128 && s.rows * s.columns >= 96 * (s.rows + s.columns);
}

SplitMatmul::SplitMatmul(const MatmulShape& shape, Activation activation, bool add, int threads)
    : shape_(shape), activation_(activation), add_(add), threads_(threads) {
  depth_block_ = whole_blocks(ceil_div(shape.depth, ceil_div(shape.depth, deepest)));
  const std::int64_t numbers = (std::min(widest, whole_blocks(shape.columns)) + block) * depth_block_;
  part_scratch_ = align64(3 * std::size_t(numbers) * sizeof(bf16));
}

std::size_t SplitMatmul::scratch_bytes() const { return part_scratch_ * std::size_t(threads_); }

void SplitMatmul::run(const void* a_numbers, const void* b_numbers, const float* bias, float* dst,
                      void* scratch) const {
  const auto *a = static_cast<const float*>(a_numbers), *b = static_cast<const float*>(b_numbers);
  if (threads_ == 1) return run_part({0, shape_.rows, 0, shape_.columns}, a, b, bias, dst, static_cast<bf16*>(scratch));
  // Each part splits the numbers of the other matrix again. So a thread has only one part, of which no other thread can
  // take over anything.
  const bool by_rows = shape_.rows >= shape_.columns;
  const std::int64_t count = by_rows ? shape_.rows : shape_.columns;
  parallel_ranges(whole_blocks(count) / block, ceil_div(whole_blocks(count) / block, std::int64_t(threads_)),
                  [&](std::int64_t begin, std::int64_t end) {
                    begin *= block;
                    end = std::min(end * block, count);
                    bf16* const own =
                        static_cast<bf16*>(scratch) + part_scratch_ / sizeof(bf16) * std::size_t(thread_number());
                    run_part(by_rows ? Part{begin, end, 0, shape_.columns} : Part{0, shape_.rows, begin, end}, a, b,
                             bias, dst, own);
                  });
}

void SplitMatmul::run_part(const Part& part, const float* a, const float* b, const float* bias, float* dst,
                           bf16* scratch) const {
  amx::configure_tiles();
  for (std::int64_t c = part.column_begin; c < part.column_end; c += widest)
    for (std::int64_t k = 0; k < shape_.depth; k += depth_block_) {
      const Part block{part.row_begin, part.row_end, c, std::min(c + widest, part.column_end)};
      multiply(block, k, a, b, bias ? bias + c : nullptr, dst + c, scratch);
    }
  amx::release_tiles();
}

// The products of a block of the depth.
void SplitMatmul::multiply(const Part& part, std::int64_t k0, const float* a, const float* b, const float* bias,
                           float* dst, bf16* scratch) const {
  const std::int64_t columns = part.column_end - part.column_begin, end = std::min(k0 + depth_block_, shape_.depth),
                     steps = whole_blocks(end - k0) / block;
  bf16* const rows_at = scratch + whole_blocks(columns) / block * steps * step_numbers;
  for (std::int64_t c = 0; c < columns; c += block)
    for (std::int64_t s = 0; s < steps; ++s) {
      const std::int64_t k = k0 + s * block;
      const float* from = b + k * shape_.b.row + (part.column_begin + c) * shape_.b.column;
      split_block(split_columns, scratch + (c / block * steps + s) * step_numbers,
                  {from, shape_.b, end - k, columns - c});
    }
  const bool starts = k0 == 0 && !add_;
  for (std::int64_t r = part.row_begin; r < part.row_end; r += block) {
    const std::int64_t rows = std::min(block, part.row_end - r);
    for (std::int64_t s = 0; s < steps; ++s) {
      const std::int64_t k = k0 + s * block;
      split_block(split_rows, rows_at + s * step_numbers,
                  {a + r * shape_.a.row + k * shape_.a.column, shape_.a, rows, end - k});
    }
    float* const to = dst + r * shape_.dst_width;
    for (std::int64_t c = 0; c < columns; c += block) {
      const std::int64_t wide = std::min(block, columns - c);
      const bf16* const panel = scratch + c / block * steps * step_numbers;
      alignas(64) float product[block * block];
      const bool in_place = starts && !bias && rows == block && wide == block;
      multiply_block(rows_at, panel, in_place ? to + c : product, in_place ? shape_.dst_width : block, steps);
      if (!in_place) add_block(to + c, shape_.dst_width, product, rows, wide, starts, bias ? bias + c : nullptr);
    }
    if (end == shape_.depth) activate_rows(activation_, to, shape_.dst_width, rows, columns);
  }
}

}  // namespace millrace::cpu
