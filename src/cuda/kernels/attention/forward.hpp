// The forward kernel of attention.
#pragma once
#include "cuda/kernels/attention/heads.hpp"

namespace millrace::cuda::attention {

template <class T, int n, int parts>
struct Forward {
  Heads h;
  T* dst;
  const T* src;
  float* log_sums;  // null in Mode::infer

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    float *const shared = block.template shared<float>(), *const scores = shared + scores_at,
                 *const exchange = shared + exchange_at, *const of_rows = shared + of_rows_at;
    const Place at(int(block.index()), h, h.heads, parts * tile);
    const int key_head = h.heads + at.head / (h.heads / h.key_heads), own_row = block.thread() / row_threads;
    const Rows<const T> queries = h.src_rows(src, at.row, at.first, at.head);
    Values sums[parts];
    set_zero(sums);
    float maximum = -INFINITY, sum = 0;  // of own_row; the sum is this thread's part
    MR_NO_UNROLL for (int first_key = h.key_begin(at.row, at.first); first_key < h.key_end(at.first);
                      first_key += tile) {
      write_scores(block, queries, h.src_rows(src, at.row, first_key, key_head), at, first_key);
      const float before = maximum;
      softmax(block, own_row, maximum, sum);
      drop(block, at, own_row, first_key);
      if (block.thread() % row_threads == 0) of_rows[own_row] = expf(before - finite(maximum));  // 0 in the first tile
      block.sync();
      for (int i = 0; i < each; ++i) {
        const float factor = of_rows[block.thread() / side + side * i];
        for (int part = 0; part < parts; ++part)
          for (int j = 0; j < each; ++j) sums[part][i][j] *= factor;
      }
      const Rows<const T> values = h.src_rows(src, at.row, first_key, key_head + h.key_heads);
      MR_UNROLL for (int part = 0; part < parts; ++part)
          multiply_columns<n>(block, shared, sums[part], scores, values, at.column + part * tile, h.size);
    }
    exchange[block.thread()] = sum;
    block.sync();
    float total = 0;
    for (int k = 0; k < row_threads; ++k) total += exchange[own_row * row_threads + k];
    if (block.thread() % row_threads == 0) {
      of_rows[own_row] = h.factor / total;
      if (log_sums && at.column == 0 && own_row < queries.count)
        log_sums[h.query(at.row, at.head, at.first + own_row)] = maximum + logf(total);
    }
    block.sync();
    MR_UNROLL for (int part = 0; part < parts; ++part)
        write_rows<n>(block, h.dst_rows(dst, at.row, at.first, at.head), at.column + part * tile, h.size, sums[part],
                      [&](int row) { return of_rows[row]; });
  }

 private:
  // A maximum that scores can be subtracted from. Until the first tile of its document, that of a query is -infinity.
  static MR_DEVICE_INLINE float finite(float maximum) { return maximum == -INFINITY ? 0 : maximum; }
  template <class Block>
  MR_DEVICE_INLINE void write_scores(Block& block, const Rows<const T>& queries, const Rows<const T>& keys,
                                     const Place& at, int first_key) const {
    float* const shared = block.template shared<float>();
    Values s[1];
    set_zero(s);
    multiply_rows<n>(block, shared, s[0], queries, keys, h.size);
    const int y = block.thread() / side, x = block.thread() % side;
    for (int i = 0; i < each; ++i) {
      const int row = y + side * i, query = at.first + row, start = h.start(at.row, query);
      for (int j = 0; j < each; ++j) {
        // The row of a query that does not exist gets scores too, because a sum of 0 would lead to NaNs.
        const int column = x + side * j, key = first_key + column;
        const bool visible = key >= start && key < h.positions && (!h.causal || key <= query);
        shared[scores_at + row * tile_stride + column] = visible ? h.scale * s[0][i][j] : -INFINITY;
      }
    }
    block.sync();
  }
  // Online softmax (Milakov and Gimelshein 2018).
  template <class Block>
  MR_DEVICE_INLINE void softmax(Block& block, int own_row, float& maximum, float& sum) const {
    float *const shared = block.template shared<float>(), *const exchange = shared + exchange_at;
    float* const row = shared + scores_at + own_row * tile_stride + block.thread() % row_threads;
    const float before = maximum;
    for (int k = 0; k < tile; k += row_threads) maximum = row[k] > maximum ? row[k] : maximum;
    exchange[block.thread()] = maximum;
    block.sync();
    for (int k = 0; k < row_threads; ++k) {
      const float other = exchange[own_row * row_threads + k];
      maximum = other > maximum ? other : maximum;
    }
    const float shift = finite(maximum);
    sum *= expf(before - shift);
    for (int k = 0; k < tile; k += row_threads) {
      row[k] = expf(row[k] - shift);
      sum += row[k];
    }
  }
  // Each thread drops some of the values of its row that it has computed.
  template <class Block>
  MR_DEVICE_INLINE void drop(Block& block, const Place& at, int own_row, int first_key) const {
    if (!h.ids) return;
    float* const row = block.template shared<float>() + scores_at + own_row * tile_stride;
    MR_NO_UNROLL for (int x = block.thread() % row_threads; x < side; x += row_threads) {
      const unsigned kept = h.kept(at.row, at.head, at.first + own_row, first_key, x);
      for (int j = 0; j < each; ++j)
        if (!(kept >> j & 1u)) row[x + side * j] = 0;
    }
  }
};

}  // namespace millrace::cuda::attention
