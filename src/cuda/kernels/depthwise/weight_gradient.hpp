// The kernel functors of the weight gradient of a depthwise convolution. A block sums a part of the strips for some
// taps and channels, and writes sums[part, channel, tap]. Column sums of the parts are the gradient.
#pragma once
#include "cuda/kernels/depthwise/depthwise_kernels.hpp"

namespace millrace::cuda::depthwise {

// What a block handles: its index is (part * groups + group) * tiles + tile, where `group` is a group of taps.
struct Share {
  int tile, group, part;
};
MR_DEVICE_INLINE Share share_of(const Geometry& g, const Divider& by_groups, std::int64_t index) {
  Share s;
  s.tile = int(index);
  s.group = g.by_tiles.split(s.tile);
  s.part = by_groups.split(s.group);
  return s;
}

// Adds the sums of the threads of a block that have the same channels, and writes those of a row of K taps.
template <int K, int n, class Block>
MR_DEVICE_INLINE void write_sums(Block& block, const float (&sum)[K][n], const Geometry& g, const Lane& lane,
                                 float* to) {
  float* shared = block.template shared<float>() + block.thread();
  MR_UNROLL for (int k = 0; k < K; ++k) MR_UNROLL for (int c = 0; c < n; ++c) shared[(k * n + c) * threads] = sum[k][c];
  block.sync();
  for (int left = g.high; left > 1;) {
    const int half = (left + 1) / 2;
    if (lane.exists && lane.y + half < left)
      MR_UNROLL for (int i = 0; i < K * n; ++i) shared[i * threads] += shared[i * threads + half * g.wide];
    block.sync();
    left = half;
  }
  if (lane.exists && lane.y == 0)
    MR_UNROLL for (int k = 0; k < K; ++k) MR_UNROLL for (int c = 0; c < n; ++c) to[c * g.taps + k] =
        shared[(k * n + c) * threads];
  block.sync();
}

// K x K taps, of one plane of the kernel. Along x, stride and dilation are 1. 2 * K * K sums stay in registers.
template <class T, int K>
struct MultiplyRows {
  static constexpr int n = 2, pixels = K < 7 ? 8 : 4, channels = n, written_sums = K * n;
  Geometry g;
  Divider by_groups;  // planes of the kernel
  float* sums;
  const T *src, *diff;
  int parts;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Share share = share_of(g, by_groups, block.index());
    const Lane lane = lane_of<n>(g, block.thread(), share.tile);
    float sum[K][K][n];
    MR_UNROLL for (int r = 0; r < K; ++r) MR_UNROLL for (int k = 0; k < K; ++k) MR_UNROLL for (int c = 0; c < n; ++c)
        sum[r][k][c] = 0;
    for (int number = share.part * g.high + lane.y; lane.exists && number < g.strips; number += parts * g.high) {
      const Geometry::Strip s = g.strip(number);
      const int z = g.axis[0].coordinate(s.z, share.group);
      if (z >= 0) add_strip(sum, s, z, lane.channel);
    }
    MR_UNROLL for (int r = 0; r < K; ++r)
        write_sums(block, sum[r], g, lane,
                   sums + (std::int64_t(share.part) * g.channels + lane.channel) * g.taps + (share.group * K + r) * K);
  }

 private:
  MR_DEVICE_INLINE void add_strip(float (&sum)[K][K][n], const Geometry::Strip& s, int z, int channel) const {
    float d[pixels][n];
    const T* row = diff + g.to_row(s) + channel;
    MR_UNROLL for (int p = 0; p < pixels; ++p) {
      const int x = s.x * pixels + p;
      MR_UNROLL for (int c = 0; c < n; ++c) d[p][c] = 0;
      if (x < g.axis[2].to) load(d[p], row + std::int64_t(x) * g.channels);
    }
    MR_UNROLL for (int r = 0; r < K; ++r) {
      const int y = g.axis[1].coordinate(s.y, r);
      if (y < 0) continue;
      const T* line = src + g.from_row(s.image, z, y) + channel;
      const int first = s.x * pixels - g.axis[2].pad;
      float v[pixels + K - 1][n];
      MR_UNROLL for (int i = 0; i < pixels + K - 1; ++i) {
        MR_UNROLL for (int c = 0; c < n; ++c) v[i][c] = 0;
        if (first + i >= 0 && first + i < g.axis[2].from) load(v[i], line + std::int64_t(first + i) * g.channels);
      }
      MR_UNROLL for (int k = 0; k < K; ++k) MR_UNROLL for (int p = 0; p < pixels; ++p)
          MR_UNROLL for (int c = 0; c < n; ++c) sum[r][k][c] += v[p + k][c] * d[p][c];
    }
  }
};

// One tap, for any kernel, stride and dilation, of n channels.
template <class T, int n>
struct MultiplyTap {
  static constexpr int pixels = 1, channels = n, written_sums = n;
  Geometry g;
  Divider by_groups;  // taps
  float* sums;
  const T *src, *diff;
  int parts;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Share share = share_of(g, by_groups, block.index());
    const Lane lane = lane_of<n>(g, block.thread(), share.tile);
    const int row = share.group / g.axis[2].kernel, kx = share.group - row * g.axis[2].kernel,
              kz = row / g.axis[1].kernel, ky = row - kz * g.axis[1].kernel;
    float sum[1][n];
    MR_UNROLL for (int c = 0; c < n; ++c) sum[0][c] = 0;
    for (int number = share.part * g.high + lane.y; lane.exists && number < g.strips; number += parts * g.high) {
      const Geometry::Strip s = g.strip(number);
      const int z = g.axis[0].coordinate(s.z, kz), y = g.axis[1].coordinate(s.y, ky), x = g.axis[2].coordinate(s.x, kx);
      if (z < 0 || y < 0 || x < 0) continue;
      float v[n], d[n];
      load(v, src + g.from_row(s.image, z, y) + std::int64_t(x) * g.channels + lane.channel);
      load(d, diff + g.to_row(s) + std::int64_t(s.x) * g.channels + lane.channel);
      MR_UNROLL for (int c = 0; c < n; ++c) sum[0][c] += v[c] * d[c];
    }
    write_sums(block, sum, g, lane,
               sums + (std::int64_t(share.part) * g.channels + lane.channel) * g.taps + share.group);
  }
};

}  // namespace millrace::cuda::depthwise
