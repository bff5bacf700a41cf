// Tiles of attention: products of 64 x 64 values in float32. Their factors pass through shared memory, and each of the
// 256 threads of a block adds up 4 x 4 values.
#pragma once
#include "cuda/block/half.hpp"

namespace millrace::cuda::attention {

constexpr int tile = 64;  // queries, keys or columns
constexpr int threads = 256;
constexpr int side = 16;  // thread (y, x) of a block is number y * side + x
constexpr int each = tile / side;
constexpr int depth = 32;  // columns of two factors that are in shared memory at once
// Rows in shared memory. Four floats more than needed: neighbours that read 16 bytes each use different banks.
constexpr int factor_stride = depth + 4, tile_stride = tile + 4;
constexpr int staged_floats = 2 * tile * factor_stride;
static_assert(tile * tile_stride <= staged_floats);

// The values of a thread. In a tile of scores: rows y + side * i, columns x + side * j. In a tile of sums, whose rows
// are written to memory: columns each * x + j.
using Values = float[each][each];

// `count` rows of a tile in memory; the others count as zero.
template <class T>
struct Rows {
  T* first;
  std::int64_t stride;
  int count;
};

MR_DEVICE_INLINE void load_four(float (&to)[4], const float* from) {
  const Pack<float, 4> pack = *reinterpret_cast<const Pack<float, 4>*>(from);
  for (int k = 0; k < 4; ++k) to[k] = pack.v[k];
}

// Copies columns [column, column + width) of a tile into shared memory. Columns from `columns` on are zero. n: elements
// of an access; it divides `columns`.
template <int width, int n, class Block, class T>
MR_DEVICE_INLINE void stage(Block& block, float* to, int stride, const Rows<T>& rows, int column, int columns) {
  constexpr int packs = width / n;
  for (int i = block.thread(); i < tile * packs; i += threads) {
    const int row = i / packs, c = i % packs * n;
    float values[n];
    for (int k = 0; k < n; ++k) values[k] = 0;
    if (row < rows.count && column + c < columns) load(values, rows.first + row * rows.stride + column + c);
    float* const at = to + row * stride + c;
    constexpr int m = n < 4 ? n : 4;
    for (int first = 0; first < n; first += m) {
      Pack<float, m> pack;
      for (int k = 0; k < m; ++k) pack.v[k] = values[first + k];
      *reinterpret_cast<Pack<float, m>*>(at + first) = pack;
    }
  }
}

// scores += a * b^T, both with `columns` columns.
template <int n, class Block, class T>
MR_DEVICE_INLINE void multiply_rows(Block& block, float* staged, Values& scores, const Rows<T>& a, const Rows<T>& b,
                                    int columns) {
  float* const of_b = staged + tile * factor_stride;
  const int y = block.thread() / side, x = block.thread() % side;
  MR_NO_UNROLL for (int column = 0; column < columns; column += depth) {
    block.sync();  // what is read there now
    stage<depth, n>(block, staged, factor_stride, a, column, columns);
    stage<depth, n>(block, of_b, factor_stride, b, column, columns);
    block.sync();
    const int end = columns - column < depth ? columns - column : depth;
    MR_NO_UNROLL for (int k = 0; k < end; k += 4) {
      float left[each][4], right[each][4];
      for (int i = 0; i < each; ++i) load_four(left[i], staged + (y + side * i) * factor_stride + k);
      for (int j = 0; j < each; ++j) load_four(right[j], of_b + (x + side * j) * factor_stride + k);
      for (int l = 0; l < 4; ++l)
        for (int i = 0; i < each; ++i)
          for (int j = 0; j < each; ++j) scores[i][j] += left[i][l] * right[j][l];
    }
  }
}

// sums += weights * b, for the columns of b from `column` on. weights: a tile in shared memory, with zeros in the
// columns of rows that b does not have.
template <int n, class Block, class T>
MR_DEVICE_INLINE void multiply_columns(Block& block, float* staged, Values& sums, const float* weights,
                                       const Rows<T>& b, int column, int columns) {
  const int y = block.thread() / side, x = block.thread() % side;
  block.sync();
  stage<tile, n>(block, staged, tile_stride, b, column, columns);
  block.sync();
  MR_NO_UNROLL for (int k = 0; k < b.count; k += 4) {
    float left[each][4], right[4][each];
    for (int i = 0; i < each; ++i) load_four(left[i], weights + (y + side * i) * tile_stride + k);
    for (int l = 0; l < 4; ++l) load_four(right[l], staged + (k + l) * tile_stride + each * x);
    for (int l = 0; l < 4; ++l)
      for (int i = 0; i < each; ++i)
        for (int j = 0; j < each; ++j) sums[i][j] += left[i][l] * right[l][j];
  }
}

template <int parts>
MR_DEVICE_INLINE void set_zero(Values (&sums)[parts]) {
  for (int part = 0; part < parts; ++part)
    for (int i = 0; i < each; ++i)
      for (int j = 0; j < each; ++j) sums[part][i][j] = 0;
}

// Writes a tile of sums, times factor(row), to columns [column, columns).
template <int n, class Block, class T, class Factor>
MR_DEVICE_INLINE void write_rows(Block& block, const Rows<T>& to, int column, int columns, const Values& sums,
                                 const Factor& factor) {
  const int y = block.thread() / side, c = column + block.thread() % side * each;
  for (int i = 0; i < each; ++i) {
    const int row = y + side * i;
    if (row >= to.count) break;
    float values[each];
    for (int j = 0; j < each; ++j) values[j] = sums[i][j] * factor(row);
    T* const at = to.first + row * to.stride + c;
    if constexpr (n >= each) {
      if (c < columns) store(at, values);
    } else {
      for (int j = 0; j < each; ++j)
        if (c + j < columns) at[j] = narrow<T>(values[j]);
    }
  }
}

}  // namespace millrace::cuda::attention
