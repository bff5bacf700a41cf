// The kernel functors of depthwise convolutions: each channel has a kernel of its own. A thread computes one or two
// channels of a strip, which is up to eight pixels of a row of the result. The threads of a warp have neighbouring
// channels, so that they read whole lines of memory.
//
// Bounds: a result is 2 * taps operations for one element that is read and one that is written. With 3 x 3 taps the
// memory is the limit. With 7 x 7 taps it is the arithmetic in 16 bits (twice the time of the memory on an H200), and
// the memory in float32. Tensors are read several times, by the strips of neighbouring rows, but those run at the same
// time, and the caches answer.
#pragma once
#include "cuda/block/divider.hpp"
#include "cuda/block/half.hpp"

namespace millrace::cuda::depthwise {

constexpr int threads = 256, tile_lanes = 32;
constexpr int taps_of_chunk = 128;  // whose weights a block keeps in shared memory

// One axis. Result o reads with tap k what lies at (o * stride + k * dilation - pad) / spread, where spread divides
// that.
struct Axis {
  int from = 1, to = 1, kernel = 1, stride = 1, spread = 1, pad = 0, dilation = 1;
  Divider by_spread;
  MR_DEVICE_INLINE int coordinate(int o, int k) const {  // negative: padding
    int at = o * stride + k * dilation - pad;
    if (at < 0) return -1;
    const int place = by_spread.split(at);
    return at || place >= from ? -1 : place;
  }
};

struct Geometry {
  Axis axis[3];
  Divider by_extent[3];        // planes, rows, and strips of a row of the result
  int channels, taps, strips;  // strips: of all rows
  int tiles, wide, high;       // tiles of `wide` groups of channels; strips of a block
  Divider by_tiles, by_wide;

  struct Strip {
    int image, z, y, x;  // x: number of the strip in its row
  };
  MR_DEVICE_INLINE Strip strip(int number) const {
    Strip s;
    s.x = number;
    number = by_extent[2].split(s.x);
    s.y = number;
    number = by_extent[1].split(s.y);
    s.z = number;
    s.image = by_extent[0].split(s.z);
    return s;
  }
  MR_DEVICE_INLINE std::int64_t from_row(int image, int z, int y) const {  // its first element
    return ((std::int64_t(image) * axis[0].from + z) * axis[1].from + y) * axis[2].from * channels;
  }
  MR_DEVICE_INLINE std::int64_t to_row(const Strip& s) const {
    return ((std::int64_t(s.image) * axis[0].to + s.z) * axis[1].to + s.y) * axis[2].to * channels;
  }
};

// Where a thread works: its first channel, and its place in the block.
struct Lane {
  int channel, x, y;  // x: of `wide`, y: of `high`
  bool exists;
};
template <int n>
MR_DEVICE_INLINE Lane lane_of(const Geometry& g, int thread, int tile) {
  Lane l;
  l.x = thread;
  l.y = g.by_wide.split(l.x);
  l.channel = (tile * g.wide + l.x) * n;
  l.exists = l.y < g.high && l.channel < g.channels;
  return l;
}

struct Taps {
  int first, count;
  bool turned;  // counted from the last tap
};
// Copies the weights of a tile's channels to shared memory as (taps, wide * n), from (channels, taps).
template <int n, class T>
MR_DEVICE_INLINE void stage_weights(float* shared, const T* weights, const Geometry& g, int tile, const Taps& taps,
                                    int thread) {
  const int width = g.wide * n;
  for (int i = thread; i < width * taps.count; i += threads) {
    int c = i / n;
    const int tap = taps.first + g.by_wide.split(c), channel = tile * width + c * n + i % n;
    const int from = taps.turned ? g.taps - 1 - tap : tap;
    shared[i] = channel < g.channels ? widen(weights[channel * g.taps + from]) : 0.0f;
  }
}

template <int n, class T>
MR_DEVICE_INLINE void store_pixel(T* to, float (&sum)[n], bool add) {
  if (add) {
    float before[n];
    load(before, to);
    MR_UNROLL for (int c = 0; c < n; ++c) sum[c] += before[c];
  }
  store(to, sum);
}

// The results of a strip of `pixels`, with a kernel of K taps in a row. Along x, stride, spread and dilation are 1.
// Each element of the source is loaded once for a row of taps.
template <class T, int K>
struct ConvolveRows {
  static constexpr int n = 2, pixels = 8, channels = n;
  Geometry g;
  T* to;
  const T *from, *weights;
  const float* bias;
  bool turned, add;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int group = int(block.index());
    const int tile = group - g.by_tiles(group) * g.tiles;
    group = g.by_tiles(group);
    float* shared = block.template shared<float>();
    stage_weights<n>(shared, weights, g, tile, {0, g.taps, turned}, block.thread());
    block.sync();
    const Lane lane = lane_of<n>(g, block.thread(), tile);
    const int number = group * g.high + lane.y;
    if (!lane.exists || number >= g.strips) return;
    const Geometry::Strip s = g.strip(number);
    float sum[pixels][n];
    MR_UNROLL for (int p = 0; p < pixels; ++p) MR_UNROLL for (int c = 0; c < n; ++c) sum[p][c] =
        bias ? bias[lane.channel + c] : 0.0f;
    for (int kz = 0; kz < g.axis[0].kernel; ++kz) {
      const int z = g.axis[0].coordinate(s.z, kz);
      if (z < 0) continue;
      for (int ky = 0; ky < g.axis[1].kernel; ++ky) {
        const int y = g.axis[1].coordinate(s.y, ky);
        if (y < 0) continue;
        add_row(sum, from + g.from_row(s.image, z, y) + lane.channel, s.x * pixels - g.axis[2].pad,
                shared + ((kz * g.axis[1].kernel + ky) * K * g.wide + lane.x) * n);
      }
    }
    T* first = to + g.to_row(s) + lane.channel;
    MR_UNROLL for (int p = 0; p < pixels; ++p) {
      const int x = s.x * pixels + p;
      if (x < g.axis[2].to) store_pixel(first + std::int64_t(x) * g.channels, sum[p], add);
    }
  }

 private:
  MR_DEVICE_INLINE void add_row(float (&sum)[pixels][n], const T* row, int x, const float* weight) const {
    float v[pixels + K - 1][n], w[K][n];
    MR_UNROLL for (int i = 0; i < pixels + K - 1; ++i) {
      MR_UNROLL for (int c = 0; c < n; ++c) v[i][c] = 0;
      if (x + i >= 0 && x + i < g.axis[2].from) load(v[i], row + std::int64_t(x + i) * g.channels);
    }
    MR_UNROLL for (int k = 0; k < K; ++k) load(w[k], weight + k * g.wide * n);
    MR_UNROLL for (int k = 0; k < K; ++k) MR_UNROLL for (int p = 0; p < pixels; ++p)
        MR_UNROLL for (int c = 0; c < n; ++c) sum[p][c] += v[p + k][c] * w[k][c];
  }
};

// One result for any kernel, stride and dilation, of n channels.
template <class T, int n>
struct ConvolvePixels {
  static constexpr int pixels = 1, channels = n;
  Geometry g;
  T* to;
  const T *from, *weights;
  const float* bias;
  bool turned, add;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int group = int(block.index());
    const int tile = group - g.by_tiles(group) * g.tiles;
    group = g.by_tiles(group);
    float* shared = block.template shared<float>();
    const Lane lane = lane_of<n>(g, block.thread(), tile);
    const int number = group * g.high + lane.y;
    const bool works = lane.exists && number < g.strips;
    const Geometry::Strip s = g.strip(works ? number : 0);
    float sum[n];
    MR_UNROLL for (int c = 0; c < n; ++c) sum[c] = works && bias ? bias[lane.channel + c] : 0.0f;
    for (int first = 0; first < g.taps; first += taps_of_chunk) {
      const int count = g.taps - first < taps_of_chunk ? g.taps - first : taps_of_chunk;
      if (first > 0) block.sync();
      stage_weights<n>(shared, weights, g, tile, {first, count, turned}, block.thread());
      block.sync();
      for (int t = 0; works && t < count; ++t) add_tap(sum, s, lane, first + t, shared + (t * g.wide + lane.x) * n);
    }
    if (works) store_pixel(to + g.to_row(s) + std::int64_t(s.x) * g.channels + lane.channel, sum, add);
  }

 private:
  MR_DEVICE_INLINE void add_tap(float (&sum)[n], const Geometry::Strip& s, const Lane& lane, int tap,
                                const float* weight) const {
    const int row = tap / g.axis[2].kernel, kx = tap - row * g.axis[2].kernel, kz = row / g.axis[1].kernel;
    const int z = g.axis[0].coordinate(s.z, kz), y = g.axis[1].coordinate(s.y, row - kz * g.axis[1].kernel),
              x = g.axis[2].coordinate(s.x, kx);
    if (z < 0 || y < 0 || x < 0) return;
    float v[n], w[n];
    load(v, from + g.from_row(s.image, z, y) + std::int64_t(x) * g.channels + lane.channel);
    load(w, weight);
    MR_UNROLL for (int c = 0; c < n; ++c) sum[c] += v[c] * w[c];
  }
};

}  // namespace millrace::cuda::depthwise
