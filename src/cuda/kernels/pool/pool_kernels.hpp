// The kernel functors of pooling. Each handles one pack of channels of one pixel. Both directions gather: a result
// reads all pixels that it depends on. So nothing must be zeroed first, there are no atomics, and the order of
// additions is fixed. A tap is a position in the window.
#pragma once
#include <cmath>

#include "cuda/block/divider.hpp"
#include "cuda/block/half.hpp"

namespace millrace::cuda::pool {

// A range along one axis.
struct Span {
  int first, count;
};

struct Axis {
  int in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
  Divider by_stride, by_dilation;

  // The pixel of the first tap of result o; negative: padding.
  MR_DEVICE_INLINE int start(int o) const { return o * stride - pad; }
  // The taps of result o whose pixels exist.
  MR_DEVICE_INLINE Span taps(int o) const {
    const int s = start(o), room = in - s;
    const int first = s < 0 ? by_dilation.up(-s) : 0, end = room > 0 ? by_dilation.up(room) : 0;
    const int count = (end < kernel ? end : kernel) - first;
    return {first, count < 0 ? 0 : count};
  }
  // The results whose windows may contain pixel i.
  MR_DEVICE_INLINE Span results(int i) const {
    const int last = by_stride(i + pad), spare = i + pad - (kernel - 1) * dilation;
    const int first = spare > 0 ? by_stride.up(spare) : 0, count = (last < out ? last + 1 : out) - first;
    return {first, count < 0 ? 0 : count};
  }
  // The tap of result o that reads pixel i; -1: none does.
  MR_DEVICE_INLINE int tap(int i, int o) const {
    int k = i - start(o);
    const int t = by_dilation.split(k);
    return k ? -1 : t;
  }
};

struct Geometry {
  Axis axis[3];
  int channels, packs;
  Divider by_packs, by_in[3], by_out[3];  // divide by the number of packs, and by the extents
  float share;                            // 1 / number of taps of a window, including those in the padding

  MR_DEVICE_INLINE std::int64_t in_at(int image, int z, int y, int x) const {
    return (((std::int64_t(image) * axis[0].in + z) * axis[1].in + y) * axis[2].in + x) * channels;
  }
  MR_DEVICE_INLINE std::int64_t out_at(int image, int z, int y, int x) const {
    return (((std::int64_t(image) * axis[0].out + z) * axis[1].out + y) * axis[2].out + x) * channels;
  }
};

struct Place {
  int image, z, y, x, pack;
};

MR_DEVICE_INLINE Place place_of(int i, const Geometry& g, const Divider (&extent)[3]) {
  Place p;
  int rest = g.by_packs(i);
  p.pack = i - rest * g.packs;
  int next = extent[2](rest);
  p.x = rest - next * int(extent[2].divisor);
  rest = next;
  next = extent[1](rest);
  p.y = rest - next * int(extent[1].divisor);
  rest = next;
  p.image = extent[0](rest);
  p.z = rest - p.image * int(extent[0].divisor);
  return p;
}

// Calls use(pack, tap) for each existing pixel in the window of p, in the order of the taps, with four loads in flight.
// Before that it calls begin(first tap). Returns false, and calls neither, if the window contains no pixel.
template <int n, class T, class Begin, class Use>
MR_DEVICE_INLINE bool walk_window(const Geometry& g, const Place& p, const T* src, const Begin& begin, const Use& use) {
  const Axis &az = g.axis[0], &ay = g.axis[1], &ax = g.axis[2];
  const Span z = az.taps(p.z), y = ay.taps(p.y), x = ax.taps(p.x);
  const int total = z.count * y.count * x.count;
  if (total == 0) return false;
  // Offsets within an image are below 2^31. A step that would wrap around is computed but never used.
  const T* image = src + g.in_at(p.image, 0, 0, 0);
  const unsigned channels = unsigned(g.channels), line = unsigned(ax.in) * channels;
  unsigned at = (unsigned(az.start(p.z) + z.first * az.dilation) * unsigned(ay.in) +
                 unsigned(ay.start(p.y) + y.first * ay.dilation)) *
                    line +
                unsigned(ax.start(p.x) + x.first * ax.dilation) * channels + unsigned(p.pack * n);
  int tap = (z.first * ay.kernel + y.first) * ax.kernel + x.first;
  const unsigned right = unsigned(ax.dilation) * channels, down = unsigned(ay.dilation) * line;
  const unsigned deeper = unsigned(az.dilation) * unsigned(ay.in) * line;
  const unsigned back_x = unsigned(x.count - 1) * right, back_y = unsigned(y.count - 1) * down;
  begin(tap);
  int at_x = 0, at_y = 0;
  for (int t = 0; t < total; t += 4) {
    Pack<T, n> raw[4];
    int taps[4];
    for (int u = 0; u < 4; ++u) {
      raw[u] = *reinterpret_cast<const Pack<T, n>*>(image + at);
      taps[u] = tap;
      if (t + u + 1 >= total) continue;  // load the last pixel again
      if (++at_x < x.count) {
        at += right;
        ++tap;
      } else if (at_x = 0; ++at_y < y.count) {
        at += down - back_x;
        tap += ax.kernel - x.count + 1;
      } else {
        at_y = 0;
        at += deeper - back_y - back_x;
        tap += (ay.kernel - y.count + 1) * ax.kernel - x.count + 1;
      }
    }
    for (int u = 0; u < 4; ++u)
      if (t + u < total) use(raw[u], taps[u]);
  }
  return true;
}

// The first of several equal maxima counts. A NaN counts as larger than every number.
template <class T, int n, class Position>
struct MaxForward {
  Geometry g;
  T* dst;
  const T* src;
  Position* positions;  // the tap of the maximum; null: not needed
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const Place p = place_of(int(i), g, g.by_out);
    float best[n];
    int taps[n];
    const bool any = walk_window<n>(
        g, p, src,
        [&](int tap) {
          for (int k = 0; k < n; ++k) {
            best[k] = -INFINITY;
            taps[k] = tap;
          }
        },
        [&](const Pack<T, n>& raw, int tap) {
          for (int k = 0; k < n; ++k) {
            const float v = widen(raw.v[k]);
            const bool take = !(v <= best[k]) && best[k] == best[k];
            best[k] = take ? v : best[k];
            taps[k] = take ? tap : taps[k];
          }
        });
    if (!any)  // the window contains padding only
      for (int k = 0; k < n; ++k) {
        best[k] = 0;
        taps[k] = 0;
      }
    const std::int64_t to = g.out_at(p.image, p.z, p.y, p.x) + p.pack * n;
    store(dst + to, best);
    if (!positions) return;
    Pack<Position, n> packed;
    for (int k = 0; k < n; ++k) packed.v[k] = Position(taps[k]);
    *reinterpret_cast<Pack<Position, n>*>(positions + to) = packed;
  }
};

template <class T, int n>
struct AverageForward {
  Geometry g;
  T* dst;
  const T* src;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const Place p = place_of(int(i), g, g.by_out);
    float sum[n] = {};
    walk_window<n>(
        g, p, src, [](int) {},
        [&](const Pack<T, n>& raw, int) {
          for (int k = 0; k < n; ++k) sum[k] += widen(raw.v[k]);
        });
    for (int k = 0; k < n; ++k) sum[k] *= g.share;
    store(dst + g.out_at(p.image, p.z, p.y, p.x) + p.pack * n, sum);
  }
};

// Calls use(offset, tap) for each result whose window contains pixel p: where the result is, and the tap that reads p.
template <int n, class Use>
MR_DEVICE_INLINE void walk_results(const Geometry& g, const Place& p, const Use& use) {
  const Axis &az = g.axis[0], &ay = g.axis[1], &ax = g.axis[2];
  const Span z = az.results(p.z), y = ay.results(p.y), x = ax.results(p.x);
  for (int oz = z.first; oz < z.first + z.count; ++oz)
    for (int oy = y.first; oy < y.first + y.count; ++oy)
      for (int ox = x.first; ox < x.first + x.count; ++ox) {
        const int tz = az.tap(p.z, oz), ty = ay.tap(p.y, oy), tx = ax.tap(p.x, ox);
        if (tz < 0 || ty < 0 || tx < 0) continue;
        use(g.out_at(p.image, oz, oy, ox) + p.pack * n, (tz * ay.kernel + ty) * ax.kernel + tx);
      }
}

// The gradients of the results whose maximum is pixel p.
template <int n, class T, class Position>
MR_DEVICE_INLINE void gather_max(float (&sum)[n], const Geometry& g, const Place& p, const T* diff_dst,
                                 const Position* positions) {
  walk_results<n>(g, p, [&](std::int64_t from, int tap) {
    const Pack<T, n> raw = *reinterpret_cast<const Pack<T, n>*>(diff_dst + from);
    const Pack<Position, n> kept = *reinterpret_cast<const Pack<Position, n>*>(positions + from);
    for (int k = 0; k < n; ++k) sum[k] += kept.v[k] == tap ? widen(raw.v[k]) : 0.0f;
  });
}

// max: the gradient of a result goes to the stored position. Otherwise all pixels of the window get an equal share.
template <class T, int n, class Position, bool max>
struct Backward {
  Geometry g;
  T* diff_src;
  const T* diff_dst;
  const Position* positions;
  MR_DEVICE_INLINE void operator()(std::int64_t i) const {
    const Place p = place_of(int(i), g, g.by_in);
    float sum[n] = {};
    if constexpr (max) {
      gather_max(sum, g, p, diff_dst, positions);
    } else {
      walk_results<n>(g, p, [&](std::int64_t from, int) {
        const Pack<T, n> raw = *reinterpret_cast<const Pack<T, n>*>(diff_dst + from);
        for (int k = 0; k < n; ++k) sum[k] += widen(raw.v[k]);
      });
      for (int k = 0; k < n; ++k) sum[k] *= g.share;
    }
    store(diff_src + g.in_at(p.image, p.z, p.y, p.x) + p.pack * n, sum);
  }
};

// A block handles a tile of packs of one image. The pixels are distributed over its lanes.
template <class T, int n>
struct GlobalForward {
  int pixels, channels, packs, tile, tiles, lanes;
  float share;
  T* dst;
  const T* src;
  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const int tile_at = int(unsigned(block.index()) % unsigned(tiles)), lane = block.thread() / tile;
    const std::int64_t image = unsigned(block.index()) / unsigned(tiles);
    const int mine = block.thread() % tile, first = tile_at * tile, columns = tile * n;
    float* shared = block.template shared<float>();  // [lanes][columns]
    if (lane < lanes && first + mine < packs) {
      float sum[n] = {};
      const T* from = src + image * pixels * channels + (first + mine) * n;
      for (int p = lane; p < pixels; p += 4 * lanes) {
        Pack<T, n> raw[4]{};
        for (int u = 0; u < 4; ++u)  // offsets in an image are below 2^31
          if (p + u * lanes < pixels) raw[u] = *reinterpret_cast<const Pack<T, n>*>(from + (p + u * lanes) * channels);
        for (int u = 0; u < 4; ++u)
          for (int k = 0; k < n; ++k) sum[k] += widen(raw[u].v[k]);
      }
      for (int k = 0; k < n; ++k) shared[lane * columns + mine * n + k] = sum[k];
    }
    block.sync();
    for (int c = block.thread(); c < columns && first * n + c < channels; c += block.threads()) {
      float sum = 0;
      for (int l = 0; l < lanes; ++l) sum += shared[l * columns + c];
      dst[image * channels + first * n + c] = narrow<T>(sum * share);
    }
  }
};

}  // namespace millrace::cuda::pool
