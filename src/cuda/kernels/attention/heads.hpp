// Where the tiles of attention lie in memory.
#pragma once
#include "cuda/kernels/attention/tiles.hpp"
#include "millrace/device/step_state.hpp"
#include "millrace/ops/attention_dropout.hpp"

namespace millrace::cuda::attention {

// Shared memory of a block: staged factors, a tile of scores, a value of each thread, and one of each row.
constexpr int scores_at = staged_floats, exchange_at = scores_at + tile * tile_stride,
              of_rows_at = exchange_at + threads, shared_floats = of_rows_at + tile;
constexpr int row_threads = threads / tile;  // that compute the softmax of a row

struct Heads {
  int positions, size, heads, key_heads;
  bool causal;
  float scale;
  const std::int32_t* starts = nullptr;  // of the documents, (rows, positions); null: a row is one document
  const std::int64_t* ids = nullptr;     // of the samples; null: no dropout
  const StepState* state = nullptr;
  AttentionDropout dropout = {};
  float factor = 1;  // of the probabilities that the dropout keeps

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
  // start: of the query's document
  MR_DEVICE_INLINE bool visible(int query, int key, int start) const {
    return key >= start && key < positions && query < positions && (!causal || key <= query);
  }
  MR_DEVICE_INLINE int start(int row, int query) const {
    return starts && query < positions ? starts[std::int64_t(row) * positions + query] : 0;
  }
  // Which of the keys first_key + x + side * j of a tile the dropout keeps for a query: bit j.
  MR_DEVICE_INLINE unsigned kept(int row, int head, int query, int first_key, int x) const {
    static_assert(tile == AttentionDropout::tile && side == AttentionDropout::draws && each == 4);
    if (!ids) return 15u;
    const std::uint64_t counter = dropout.counter(state->rng_step, query, first_key / tile) + std::uint64_t(x);
    const Random4 drawn = philox(dropout.key_of_head(head), counter, std::uint64_t(ids[row]));
    unsigned bits = 0;
    for (int j = 0; j < each; ++j) bits |= unsigned(dropout.keeps(drawn.v[j])) << j;
    return bits;
  }
  MR_DEVICE_INLINE int key_begin(int row, int first_query) const { return start(row, first_query) / tile * tile; }
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
