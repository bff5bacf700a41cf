// How the blocks of batch norm divide a tensor, and how they sum over it.
//
// The tensor is treated as lines of `width` elements, where width is the least common multiple of the number of
// channels and 8. So the column of an element determines its channel, packs of 8 elements are aligned and stay within
// one line, and only the last line may be shorter. A thread owns 8 columns and goes through the lines. A block owns a
// tile of columns. The lines are distributed over the blocks in turn, so that memory is read in order. The second pass
// goes in the opposite direction, so that it finds the last lines of the first pass in the L2 cache.
#pragma once
#include "cuda/block/half.hpp"
#include "millrace/ops/batch_norm_layout.hpp"

namespace millrace::cuda::batch_norm {

using millrace::batch_norm::Layout, millrace::batch_norm::pack;

struct Place {
  std::int64_t column;    // the first of the thread's eight columns
  int first, step, lane;  // the thread handles every step-th group of lines from `first` on, in each group line `lane`
  bool idle;              // the thread has no columns
};

template <class Block>
MR_DEVICE_INLINE Place place_of(const Block& block, const Layout& l) {
  const int lane = block.thread() / l.tile;
  const unsigned at = unsigned(block.index()), tiles = unsigned(l.tiles);
  const std::int64_t column = (std::int64_t(at % tiles) * l.tile + block.thread() % l.tile) * pack;
  return {column, int(at / tiles), int(unsigned(block.blocks()) / tiles), lane, lane >= l.lanes || column >= l.width};
}

template <class T>
using Raw = Pack<T, pack>;

template <class T, int inputs>
constexpr int at_once = millrace::batch_norm::lines_at_once(inputs, int(sizeof(T)));

template <class T>
MR_DEVICE_INLINE Raw<T> load_raw(const T* from, int n) {
  if (n == pack) return *reinterpret_cast<const Raw<T>*>(from);
  Raw<T> raw{};
  for (int i = 0; i < pack; ++i)
    if (i < n) raw.v[i] = from[i];
  return raw;
}
template <class T>
MR_DEVICE_INLINE void store_some(T* to, const float (&from)[pack], int n) {
  if (n == pack) return store(to, from);
  for (int i = 0; i < pack; ++i)
    if (i < n) to[i] = narrow<T>(from[i]);
}

// Calls use(load(e, n), e, n) for each pack of the thread: n elements from element e on. Loads several lines before it
// uses them.
template <int lines, bool descending, class Load, class Use>
MR_DEVICE_INLINE void for_each_line(const Layout& l, const Place& p, const Load& load, const Use& use) {
  const int group_lines = l.lanes * lines;
  const int groups = int(unsigned(l.whole_lines) / unsigned(group_lines));
  const std::int64_t stride = l.lanes * l.width, origin = p.lane * l.width + p.column;
  MR_NO_UNROLL
  for (int g = p.first; g < groups; g += p.step) {
    const std::int64_t e = std::int64_t(descending ? groups - 1 - g : g) * group_lines * l.width + origin;
    decltype(load(e, pack)) loaded[lines];
    for (int i = 0; i < lines; ++i) loaded[i] = load(e + i * stride, pack);
    for (int i = 0; i < lines; ++i) use(loaded[i], e + i * stride, pack);
  }
  if (unsigned(groups) % unsigned(p.step) != unsigned(p.first)) return;
  MR_NO_UNROLL
  for (std::int64_t e = std::int64_t(groups) * group_lines * l.width + origin; e < l.count; e += stride) {
    const int n = l.count - e < pack ? int(l.count - e) : pack;
    use(load(e, n), e, n);
  }
}

// Loads the values of the thread's columns from an array with one value for each channel.
MR_DEVICE_INLINE void load_channel_values(float (&to)[pack], const float* from, const Layout& l, const Place& p) {
  if (l.width == l.channels && reinterpret_cast<std::uintptr_t>(from) % alignof(Raw<float>) == 0) {
    load(to, from + p.column);
  } else {
    for (int i = 0; i < pack; ++i) to[i] = from[(p.column + i) % l.channels];
  }
}

}  // namespace millrace::cuda::batch_norm
