// Where the tiles of attention lie in memory.
#pragma once
#include "cuda/kernels/attention/tiles.hpp"

namespace millrace::cuda::attention {

// Shared memory of a block: staged factors, a tile of scores, a value of each thread, and one of each row.
constexpr int scores_at = staged_floats, exchange_at = scores_at + tile * tile_stride,
              of_rows_at = exchange_at + threads, shared_floats = of_rows_at + tile;
constexpr int row_threads = threads / tile;  // that compute the softmax of a row

struct Heads {
  int positions, size, heads, key_heads;
  bool causal;
  float scale;

  MR_DEVICE_INLINE int tiles() const { return (positions + tile - 1) / tile; }
  MR_DEVICE_INLINE int count(int first) const { return positions - first < tile ? positions - first : tile; }
  // Of src, or its gradient. head: of the queries, then of the keys, then of the values.
  template <class T>
  MR_DEVICE_INLINE Rows<T> src_rows(T* src, int row, int first, int head) const {
    const std::int64_t width = std::int64_t(heads + 2 * key_heads) * size;
    return {src + (std::int64_t(row) * positions + first) * width + std::int64_t(head) * size, width, count(first)};
  }
  template <class T>
  MR_DEVICE_INLINE Rows<T> dst_rows(T* dst, int row, int first, int head) const {
    const std::int64_t width = std::int64_t(heads) * size;
    return {dst + (std::int64_t(row) * positions + first) * width + std::int64_t(head) * size, width, count(first)};
  }
  // Of one value for each query: the logarithms of sums, and `delta`.
  MR_DEVICE_INLINE std::int64_t query(int row, int head, int position) const {
    return (std::int64_t(row) * heads + head) * positions + position;
  }
  MR_DEVICE_INLINE bool visible(int query, int key) const {
    return key < positions && query < positions && (!causal || key <= query);
  }
  MR_DEVICE_INLINE int key_end(int first_query) const { return causal ? first_query + count(first_query) : positions; }
};

// What a block computes: a tile of one head of a row, in columns from `column` on. Blocks that are next to each other
// read the same keys.
struct Place {
  int row, head, first, column;
  MR_DEVICE_INLINE Place(int block, const Heads& h, int of_heads, int columns) {
    const int splits = (h.size + columns - 1) / columns;
    column = block % splits * columns;
    block /= splits;
    first = (h.tiles() - 1 - block % h.tiles()) * tile;
    block /= h.tiles();
    head = block % of_heads;
    row = block / of_heads;
  }
};

}  // namespace millrace::cuda::attention
