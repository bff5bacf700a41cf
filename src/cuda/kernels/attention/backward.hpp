// The kernels of the gradients of attention.
#pragma once
#include "cuda/kernels/attention/heads.hpp"

namespace millrace::cuda::attention {

// What both kernels of the gradients read.
template <class T>
struct Tensors {
  const T *src, *dst, *diff_dst;
  const float* log_sums;
};

// dQ = scale * (P o (M o dO V^T - delta)) K, with M the factors of the dropout, or 1, and delta = the sum of dO o O
// over the columns, which the other kernel reads.
template <class T, int n, int parts>
struct QueryGradients {
  Heads h;
  Tensors<T> tensors;
  T* diff_src;
  float* delta;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    float *const shared = block.template shared<float>(), *const scores = shared + scores_at,
                 *const of_rows = shared + of_rows_at;
    const Place at(int(block.index()), h, h.heads, parts * tile);
    const int key_head = h.heads + at.head / (h.heads / h.key_heads);
    const int y = block.thread() / side, x = block.thread() % side;
    const Rows<const T> queries = h.src_rows(tensors.src, at.row, at.first, at.head),
                        diff = h.dst_rows(tensors.diff_dst, at.row, at.first, at.head);
    write_delta(block, at, diff);
    Values sums[parts];
    set_zero(sums);
    MR_NO_UNROLL for (int first_key = h.key_begin(at.row, at.first); first_key < h.key_end(at.first);
                      first_key += tile) {
      Values tiles[2];  // scores, and gradients of the probabilities
      set_zero(tiles);
      const Rows<const T> keys = h.src_rows(tensors.src, at.row, first_key, key_head);
      multiply_rows<n>(block, shared, tiles[0], queries, keys, h.size);
      multiply_rows<n>(block, shared, tiles[1], diff,
                       h.src_rows(tensors.src, at.row, first_key, key_head + h.key_heads), h.size);
      if (h.ids)
        for (int i = 0; i < each; ++i) {
          const unsigned kept = h.kept(at.row, at.head, at.first + y + side * i, first_key, x);
          for (int j = 0; j < each; ++j) tiles[1][i][j] = kept >> j & 1u ? h.factor * tiles[1][i][j] : 0;
        }
      for (int i = 0; i < each; ++i) {
        const int row = y + side * i, query = at.first + row;
        const float log_sum = row < queries.count ? tensors.log_sums[h.query(at.row, at.head, query)] : 0;
        const int start = h.start(at.row, query);
        for (int j = 0; j < each; ++j) {
          const bool visible = h.visible(query, first_key + x + side * j, start);
          const float p = visible ? expf(h.scale * tiles[0][i][j] - log_sum) : 0;
          scores[row * tile_stride + x + side * j] = p * (tiles[1][i][j] - of_rows[row]) * h.scale;
        }
      }
      MR_UNROLL for (int part = 0; part < parts; ++part)
          multiply_columns<n>(block, shared, sums[part], scores, keys, at.column + part * tile, h.size);
    }
    MR_UNROLL for (int part = 0; part < parts; ++part)
        write_rows<n>(block, h.src_rows(diff_src, at.row, at.first, at.head), at.column + part * tile, h.size,
                      sums[part], [](int) { return 1.0f; });
  }

 private:
  template <class Block>
  MR_DEVICE_INLINE void write_delta(Block& block, const Place& at, const Rows<const T>& diff) const {
    float *const shared = block.template shared<float>(), *const exchange = shared + exchange_at;
    const int row = block.thread() / row_threads, part = block.thread() % row_threads;
    float sum = 0;
    if (row < diff.count) {
      const T* const a = diff.first + row * diff.stride;
      const T* const b = h.dst_rows(tensors.dst, at.row, at.first + row, at.head).first;
      for (int c = part * n; c < h.size; c += row_threads * n) {
        float x[n], y[n];
        load(x, a + c);
        load(y, b + c);
        for (int k = 0; k < n; ++k) sum += x[k] * y[k];
      }
    }
    exchange[block.thread()] = sum;
    block.sync();
    if (part == 0) {
      for (int k = 1; k < row_threads; ++k) sum += exchange[block.thread() + k];
      shared[of_rows_at + row] = sum;
      if (at.column == 0 && row < diff.count) delta[h.query(at.row, at.head, at.first + row)] = sum;
    }
    block.sync();
  }
};

// dV = (M o P)^T dO and dK = scale * (P o (M o dO V^T - delta))^T Q. The tiles of scores are transposed: a row is a
// key.
template <class T, int n>
struct KeyGradients {
  Heads h;
  Tensors<T> tensors;
  T* diff_src;
  const float* delta;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    float *const shared = block.template shared<float>(), *const scores = shared + scores_at;
    const Place at(int(block.index()), h, h.key_heads, tile);
    const int group = h.heads / h.key_heads;
    const Rows<const T> keys = h.src_rows(tensors.src, at.row, at.first, h.heads + at.head),
                        values = h.src_rows(tensors.src, at.row, at.first, h.heads + h.key_heads + at.head);
    Values sums[2];  // of dK and dV
    set_zero(sums);
    MR_NO_UNROLL for (int head = at.head * group; head < (at.head + 1) * group; ++head) {
      MR_NO_UNROLL for (int first = h.causal ? at.first : 0; first < h.positions; first += tile) {
        if (h.start(at.row, first) >= at.first + tile) break;  // all further queries are of later documents
        const Rows<const T> queries = h.src_rows(tensors.src, at.row, first, head),
                            diff = h.dst_rows(tensors.diff_dst, at.row, first, head);
        Values tiles[2];  // probabilities and their gradients
        set_zero(tiles);
        multiply_rows<n>(block, shared, tiles[0], keys, queries, h.size);
        multiply_rows<n>(block, shared, tiles[1], values, diff, h.size);
        gradients_of_scores(block, at, head, first, tiles);
        write(block, tiles[0]);
        multiply_columns<n>(block, shared, sums[1], scores, diff, at.column, h.size);
        block.sync();
        write(block, tiles[1]);
        multiply_columns<n>(block, shared, sums[0], scores, queries, at.column, h.size);
      }
    }
    MR_UNROLL for (int of_values = 0; of_values < 2; ++of_values)
        write_rows<n>(block, h.src_rows(diff_src, at.row, at.first, h.heads + of_values * h.key_heads + at.head),
                      at.column, h.size, sums[of_values], [](int) { return 1.0f; });
  }

 private:
  // From scores and the gradients of probabilities to probabilities and the gradients of scores.
  template <class Block>
  MR_DEVICE_INLINE void gradients_of_scores(Block& block, const Place& at, int head, int first_query,
                                            Values (&tiles)[2]) const {
    const int y = block.thread() / side, x = block.thread() % side;
    for (int j = 0; j < each; ++j) {
      const int query = first_query + x + side * j;
      const bool exists = query < h.positions;
      const std::int64_t of_query = h.query(at.row, head, query);
      const float log_sum = exists ? tensors.log_sums[of_query] : 0, sum = exists ? delta[of_query] : 0;
      const int start = h.start(at.row, query);
      const unsigned kept = h.kept(at.row, head, query, at.first, y);
      for (int i = 0; i < each; ++i) {
        const bool visible = h.visible(query, at.first + y + side * i, start);
        const float p = visible ? expf(h.scale * tiles[0][i][j] - log_sum) : 0, factor = kept >> i & 1u ? h.factor : 0;
        tiles[0][i][j] = factor * p;
        tiles[1][i][j] = p * (factor * tiles[1][i][j] - sum) * h.scale;
      }
    }
  }
  template <class Block>
  MR_DEVICE_INLINE void write(Block& block, const Values& values) const {
    float* const scores = block.template shared<float>() + scores_at;
    const int y = block.thread() / side, x = block.thread() % side;
    for (int i = 0; i < each; ++i)
      for (int j = 0; j < each; ++j) scores[(y + side * i) * tile_stride + x + side * j] = values[i][j];
  }
};

}  // namespace millrace::cuda::attention
