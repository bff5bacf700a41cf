// Sums over the positions of each row and channel of a channels-last tensor (rows, positions, channels), and loops over
// all its elements with values for each row and channel. Each row is divided into parts, whose sums are added in order.
#pragma once
#include <algorithm>

#include "cuda/block/divider.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda::rows {

struct Extents {
  std::int64_t rows = 1;
  int positions = 1, channels = 1, parts = 1, part_positions = 1;

  // Error(config) if a row has too many elements.
  Extents(const char* op, std::int64_t rows_, std::int64_t positions_, std::int64_t channels_,
          const LaunchContext& context)
      : rows(rows_) {
    if (positions_ * channels_ > max_index)
      fail(Exit::config, "{}: samples of {} values are more than the kernels can index", op, positions_ * channels_);
    positions = int(positions_);
    channels = int(channels_);
    const std::int64_t wanted = std::int64_t(context.multiprocessors) * 8 / std::max<std::int64_t>(1, rows);
    parts = int(std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, positions / 64)));
    part_positions = (positions + parts - 1) / parts;
  }
  std::int64_t sum_count(int kinds) const { return rows * parts * kinds * channels; }  // floats of the sums of parts
};

// The sum number `kind` of a row and channel over the parts of sums (rows, parts, kinds, channels).
MR_DEVICE_INLINE double total(const float* sums, const Extents& e, int kinds, int kind, std::int64_t row, int channel) {
  double total = 0;
  const float* from = sums + (row * e.parts * kinds + kind) * e.channels + channel;
  for (int part = 0; part < e.parts; ++part) total += double(from[std::int64_t(part) * kinds * e.channels]);
  return total;
}

// The threads of a block form a grid of `wide` packs of channels by `high` positions; the remaining threads are idle.
// Terms: prepare(row, channel) loads what a thread needs for its channels; load(at) loads what it needs of an element,
// and add(sums, loaded) adds its terms. `ahead` elements of a channel are loaded before they are used.
template <class Terms>
struct RowSums {
  static constexpr int n = Terms::pack, kinds = Terms::kinds;
  Terms terms;
  Extents extents;
  float* sums;  // (rows, parts, kinds, channels)
  unsigned tiles;
  int wide, high;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const unsigned at = unsigned(block.index()), of_all = at / tiles, row = of_all / unsigned(extents.parts);
    const int part = int(of_all - row * unsigned(extents.parts));
    const int x = int(unsigned(block.thread()) % unsigned(wide)), y = int(unsigned(block.thread()) / unsigned(wide));
    const int channel = (int(at - of_all * tiles) * wide + x) * n;
    const bool mine = y < high && channel < extents.channels;
    float total[kinds][n];
    for (int j = 0; j < kinds; ++j)
      for (int k = 0; k < n; ++k) total[j][k] = 0;
    if (mine) {
      Terms own = terms;
      own.prepare(row, channel, extents);
      const int part_end = (part + 1) * extents.part_positions;
      const int end = part_end < extents.positions ? part_end : extents.positions;
      const std::int64_t row_begin = std::int64_t(row) * extents.positions * extents.channels + channel;
      int p = part * extents.part_positions + y;
      constexpr int ahead = Terms::ahead;
      for (; p + (ahead - 1) * high < end; p += ahead * high) {
        decltype(own.load(row_begin)) raw[ahead];
        for (int j = 0; j < ahead; ++j) raw[j] = own.load(row_begin + std::int64_t(p + j * high) * extents.channels);
        for (int j = 0; j < ahead; ++j) own.add(total, raw[j]);
      }
      for (; p < end; p += high) own.add(total, own.load(row_begin + std::int64_t(p) * extents.channels));
    }
    float* shared = block.template shared<float>() + block.thread();
    for (int j = 0; j < kinds; ++j)
      for (int k = 0; k < n; ++k) shared[(j * n + k) * block.threads()] = total[j][k];
    block.sync();
    for (int left = high; left > 1;) {
      const int half = (left + 1) / 2;
      if (mine && y + half < left)
        for (int j = 0; j < kinds; ++j)
          for (int k = 0; k < n; ++k) {
            float* const own_sum = shared + (j * n + k) * block.threads();
            *own_sum = total[j][k] += own_sum[half * wide];
          }
      block.sync();
      left = half;
    }
    if (!mine || y > 0) return;
    float* const to = sums + std::int64_t(of_all) * kinds * extents.channels + channel;
    for (int j = 0; j < kinds; ++j) store(to + std::int64_t(j) * extents.channels, total[j]);
  }
};

template <class Terms>
void sum_rows(const LaunchContext& context, const Extents& extents, float* sums, const Terms& terms) {
  constexpr int threads = 256, n = Terms::pack;
  const int packs = extents.channels / n, wide = std::min(packs, 32), tiles = (packs + wide - 1) / wide;
  const std::int64_t blocks = extents.rows * extents.parts * tiles;
  MR_CHECK(blocks <= std::int64_t(INT32_MAX));
  launch(context, blocks, threads, std::size_t(threads) * Terms::kinds * n * sizeof(float),
         RowSums<Terms>{terms, extents, sums, unsigned(tiles), wide, threads / wide});
}

// Where pack i of a slice of whole rows lies.
struct Packs {
  Divider of_row, of_channels;
  MR_DEVICE_INLINE std::int64_t values(std::int64_t i, int n, int channels) const {  // index of (row, channel)
    int rest = int(i);
    const int row = of_row.split(rest);
    of_channels.split(rest);
    return std::int64_t(row) * channels + rest * n;
  }
};

// Calls body(packs, first row, first element, count) for slices of the packs of n elements of all rows.
template <class Body>
void in_row_slices(const Extents& e, int n, const Body& body) {
  const std::int64_t row_packs = std::int64_t(e.positions) * e.channels / n;
  const Packs packs{Divider(row_packs), Divider(e.channels / n)};
  in_slices(e.rows * row_packs, row_packs, max_index,
            [&](std::int64_t begin, std::int64_t count) { body(packs, begin / row_packs, begin * n, count); });
}

// Calls body(n) with the elements of a pack for which all these pointers and the rows of channels are aligned.
template <class T, class Body>
void with_pack(std::int64_t channels, std::initializer_list<const T*> pointers, const Body& body) {
  constexpr int n = pack_size<T>;
  bool wide = channels % n == 0;
  for (const T* p : pointers) wide = wide && aligned(p, n);
  wide ? body(std::integral_constant<int, n>{}) : body(std::integral_constant<int, 1>{});
}

}  // namespace millrace::cuda::rows
