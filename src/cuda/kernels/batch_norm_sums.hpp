// The sums of batch norm: how the last blocks of a kernel add up what all its blocks have summed, and what is computed
// from the sums of a channel.
#pragma once
#include <cmath>

#include "cuda/kernels/batch_norm_tiling.hpp"
#include "cuda/kernels/norm_affine.hpp"
#include "millrace/ops/rank_exchange.hpp"

namespace millrace::cuda::batch_norm {

// The blocks of a tile ("slabs") are divided into groups. The last block of a group adds up the sums of the group, the
// last of these blocks those of all groups. So a kernel needs no other one behind it, and no block has to read much:
// one that read all 528 slabs of an H200 alone would take longer than a launch. Every addition is in double, and
// in an order that does not depend on which block comes last.
//
// A kernel with two norms has three sums in one tree, not two trees: these would need counters of their own.
struct SumTree {
  int slabs, group, groups;  // of a tile, the slabs of a group, and the groups
  float* partial;            // [slabs][sums][width]: the sums of each column
  double* grouped;           // [groups][sums][width]
  unsigned* counters;        // one for each tile, or one if channels extend over several tiles; then [tiles][groups]
  unsigned* gates;           // one for each tile, or one
};

constexpr std::size_t reduce_block_bytes(const Layout& l) {
  return std::size_t(l.lanes) * l.tile * pack * sizeof(float);
}

// Adds up a sum of each column over the lanes of the block, in their order, into to[width].
template <class Block>
MR_DEVICE_INLINE void reduce_lanes(Block& block, const Layout& l, const Place& p, const float (&of)[pack], float* to) {
  float* shared = block.template shared<float>();  // [lanes][columns]
  const int columns = l.tile * pack, mine = p.lane * columns + block.thread() % l.tile * pack;
  const std::int64_t tile_column = p.column - block.thread() % l.tile * pack;
  if (!p.idle)
    for (int i = 0; i < pack; ++i) shared[mine + i] = of[i];
  block.sync();
  for (int column = block.thread(); column < columns; column += block.threads()) {
    if (tile_column + column >= l.width) continue;
    double sum = 0;
    for (int lane = 0; lane < l.lanes; ++lane) sum += double(shared[lane * columns + column]);
    to[tile_column + column] = float(sum);
  }
}

// The same for all sums of the kernel, into partial[p.first][sums][width].
template <class Block, class... Sums>
MR_DEVICE_INLINE void reduce_block(Block& block, const Layout& l, const Place& p, float* partial,
                                   const float (&first)[pack], const Sums&... others) {
  float* to = partial + p.first * std::int64_t(1 + sizeof...(others)) * l.width;
  reduce_lanes(block, l, p, first, to);
  const auto next = [&](const float(&of)[pack]) {
    block.sync();  // all use the same shared memory
    reduce_lanes(block, l, p, of, to += l.width);
  };
  (next(others), ...);
}

// Calls use(channel, totals) once for each channel, with its sums over all blocks of the launch and all columns of the
// channel. All blocks call this after reduce_block(). Returns true in the block that called `use` for the channels of
// its tile: there is one for each gate.
template <int sums = 2, class Block, class Use>
MR_DEVICE_INLINE bool add_up(Block& block, const Layout& l, const Place& p, const SumTree& t, const Use& use) {
  const int tile = int(unsigned(block.index()) % unsigned(l.tiles)), group = int(unsigned(p.first) / unsigned(t.group));
  const int begin = group * t.group, end = begin + t.group < t.slabs ? begin + t.group : t.slabs;
  const bool alone = l.width == l.channels;  // the tile has all columns of its channels, because a line is one row
  unsigned* of_groups = t.counters + (alone ? l.tiles : 1);
  if (!block.is_last(of_groups + tile * t.groups + group, unsigned(end - begin))) return false;
  const int columns = l.tile * pack;
  for (int at = block.thread(); at < sums * columns; at += block.threads()) {
    int k = 0;
    for (int next = 1; next < sums; ++next) k += at >= next * columns;
    const std::int64_t column = std::int64_t(tile) * columns + at - k * columns;
    if (column >= l.width) continue;
    const float* from = t.partial + k * l.width + column;
    double sum = 0;
    MR_UNROLL_8 for (int slab = begin; slab < end; ++slab) sum += double(from[slab * sums * l.width]);
    t.grouped[(group * sums + k) * l.width + column] = sum;
  }
  if (!block.is_last(t.counters + (alone ? tile : 0), unsigned(alone ? t.groups : t.groups * l.tiles))) return false;
  const std::int64_t first = alone ? std::int64_t(tile) * columns : 0;
  const std::int64_t last = alone && first + columns < l.channels ? first + columns : l.channels;
  for (std::int64_t c = first + block.thread(); c < last; c += block.threads()) {
    double totals[sums] = {};
    for (std::int64_t column = c; column < l.width; column += l.channels)
      MR_UNROLL_8 for (int g = 0; g < t.groups; ++g) {
        const double* from = t.grouped + g * sums * l.width + column;
        for (int k = 0; k < sums; ++k) totals[k] += from[k * l.width];
      }
    use(c, totals);
  }
  return true;
}

MR_DEVICE_INLINE void put(float* to, float value, bool add) { *to = add ? *to + value : value; }

// Computes mean, 1 / standard deviation and running statistics of a channel from the sums of x - shift and its square.
// With `exchanged`, it only stores what the ranks exchange.
struct Moments {
  std::int64_t rows, channels;
  float epsilon, *mean, *inverse, *stats;  // stats: null if the running statistics are not needed
  bool add;
  float images;
  const float* row_weight;
  NormAffine affine = {};
  double* exchanged = nullptr;

  MR_DEVICE_INLINE void operator()(std::int64_t c, double shift, double sum, double square) const {
    const double n = double(rows), spread = square - sum * sum / n, squares = spread < 0 ? 0 : spread;  // keeps NaN
    const double center = shift + sum / n;
    if (exchanged)
      ChannelPairs<double>{exchanged, channels}.put(c, n, center, squares);
    else
      store(c, {n, center, squares});
  }
  MR_DEVICE_INLINE void store(std::int64_t c, const ChannelMoments& m) const {
    mean[c] = float(m.mean);
    inverse[c] = float(1 / sqrt(m.squares / m.count + double(epsilon)));
    affine.put(c, channels, m.mean, double(inverse[c]));
    if (!stats) return;
    const double weight = double(images) * double(*row_weight);
    put(stats + c, float(weight * m.mean), add);
    put(stats + channels + c, float(weight * m.squares / (m.count > 1 ? m.count - 1 : 1)), add);
  }
};

struct MomentsOfRanks {  // index c is a channel
  PairsOfRanks all;
  Moments moments;
  MR_DEVICE_INLINE void operator()(std::int64_t c) const { moments.store(c, all.moments(c)); }
};

struct StatisticsFromSums {  // index c is a channel
  const float* sums;
  Moments moments;
  MR_DEVICE_INLINE void operator()(std::int64_t c) const {
    moments(c, 0, double(sums[c]), double(sums[moments.channels + c]));
  }
};

// Computes mean_g and slope from the gradients of gamma and beta of a channel. With them, diff_src is
// factor * (g - mean_g - (x - mean) * slope): the two terms come from the mean and from the variance. With `exchanged`,
// it stores what the ranks exchange in place of these two.
struct GradientCoefficients {
  std::int64_t rows;
  const float* inverse;
  float *mean_g, *slope, *diff_gamma, *diff_beta;  // the last two: null if not needed
  bool add_gamma, add_beta;
  double* exchanged = nullptr;
  std::int64_t channels = 0;  // only with `exchanged`

  MR_DEVICE_INLINE void store(std::int64_t c, double gamma, double beta, double n) const {
    mean_g[c] = float(beta / n);
    slope[c] = float(gamma * double(inverse[c]) / n);
  }
  MR_DEVICE_INLINE void operator()(std::int64_t c, double gamma, double beta) const {
    if (exchanged)
      ChannelPairs<double>{exchanged, channels}.put(c, double(rows), beta, gamma);
    else
      store(c, gamma, beta, double(rows));
    if (diff_gamma) put(diff_gamma + c, float(gamma), add_gamma);
    if (diff_beta) put(diff_beta + c, float(beta), add_beta);
  }
  // From the sums of g and of g * (x - mean).
  MR_DEVICE_INLINE void of_sums(std::int64_t c, double sum, double product) const {
    (*this)(c, product * double(inverse[c]), sum);
  }
};

struct GradientsOfRanks {  // index c is a channel
  PairsOfRanks all;
  GradientCoefficients slopes;
  MR_DEVICE_INLINE void operator()(std::int64_t c) const {
    const PairsOfRanks::Sums sums = all.sums(c);
    slopes.store(c, sums.second, sums.first, sums.count);
  }
};

struct GradientsFromSums {  // index c is a channel
  const float* sums;
  std::int64_t channels;
  GradientCoefficients slopes;
  MR_DEVICE_INLINE void operator()(std::int64_t c) const { slopes(c, double(sums[c]), double(sums[channels + c])); }
};

}  // namespace millrace::cuda::batch_norm
