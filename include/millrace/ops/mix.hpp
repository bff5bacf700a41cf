// Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019). Each row of a micro-batch is mixed with the next row, the
// last one with the first. The loss mixes the losses of the two labels in the same shares (CrossEntropySpec::mix).
//
//   src[0]   samples, (N, spatial..., C) in `dtype`
//   src[1]   sample ids, (N) int64
//   src[2]   labels, (N) int32. A row is not mixed if its label or that of the next row is negative.
//   dst      as src[0]. mixup: share * row + (1 - share) * next row. cutmix: the row, but in a box the next row; then
//            share = 1 - box / sample, counted in pixels.
//
// Random numbers: r = philox(rng_key(seed, mix), state->epoch, id of the row). Mixup takes its share from the
// distribution Beta(mixup, mixup). Cutmix draws s from Beta(cutmix, cutmix). The sides of its box are
// floor(extent * (1 - s)^(1 / spatial axes)), and its centre is uniform. The box is clipped at the borders. If both are
// on, philox(rng_key(seed, mix_kind), state->epoch, id of the first row) chooses one for all rows of the micro-batch.
#pragma once
#include <vector>

#include "millrace/base/rng.hpp"
#include "millrace/ops/augmentation.hpp"

namespace millrace {

struct MixOptions {
  float mixup = 0, cutmix = 0;  // 0: off
  std::uint64_t seed = 0;
  bool on() const { return mixup > 0 || cutmix > 0; }
};

// Only in Mode::train; an evaluation mixes nothing.
struct MixSpec {
  Shape src;
  MixOptions options;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  Shape dst() const { return src; }
  void check() const;  // Error(config)
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// How one row is mixed.
struct RowMix {
  std::int64_t partner = -1;                     // the row that it is mixed with; -1: it is not mixed
  float share = 1;                               // of the row itself
  bool box = false;                              // cutmix: the positions in [begin, end) are those of the partner
  int begin[3] = {0, 0, 0}, end[3] = {0, 0, 0};  // depth, height, width

  MR_HOST_DEVICE bool takes_partner(int z, int y, int x) const {
    return z >= begin[0] && z < end[0] && y >= begin[1] && y < end[1] && x >= begin[2] && x < end[2];
  }
};

// What random bits choose from, so that all backends draw the same values: quantiles of the two distributions, first
// the shares of mixup, then the sides of the boxes of cutmix, as parts of an extent.
constexpr int mix_quantiles = 4096;
std::vector<float> mix_table(const MixSpec&);
// The middles of `count` equally probable intervals of Beta(alpha, alpha), in rising order.
std::vector<double> beta_quantiles(double alpha, int count);

// Draws the RowMix of each row. A copy in a kernel needs a table in device memory.
class Mixer {
 public:
  Mixer() = default;
  Mixer(const MixSpec& s, const float* table)
      : table_(table),
        key_(rng_key(s.options.seed, RngPurpose::mix)),
        kind_key_(rng_key(s.options.seed, RngPurpose::mix_kind)),
        rows_(s.src[0]),
        first_axis_(3 - s.src.spatial_rank()),
        mixup_(s.options.mixup > 0),
        cutmix_(s.options.cutmix > 0) {
    const auto extent = spatial_extents(s.src);
    for (std::size_t a = 0; a < 3; ++a) extent_[a] = int(extent[a]);
  }
  MR_HOST_DEVICE bool on() const { return rows_ > 1; }
  MR_HOST_DEVICE RowMix of_row(const StepState* state, const std::int64_t* ids, const std::int32_t* labels,
                               std::int64_t row) const {
    RowMix out;
    const std::int64_t partner = row + 1 < rows_ ? row + 1 : 0;
    if (!on() || labels[row] < 0 || labels[partner] < 0) return out;
    out.partner = partner;
    out.box = cutmix_ && !(mixup_ && philox(kind_key_, state->epoch, std::uint64_t(ids[0])).v[0] >> 31);
    const Random4 r = philox(key_, state->epoch, std::uint64_t(ids[row]));
    const std::uint32_t quantile = uniform_below(r.v[0], mix_quantiles);
    if (out.box)
      place_box(out, r, table_[mix_quantiles + quantile]);
    else
      out.share = table_[quantile];
    return out;
  }

 private:
  MR_HOST_DEVICE void place_box(RowMix& out, const Random4& r, float side) const {
    float inside = 1, all = 1;
    for (int a = 0; a < 3; ++a) {
      const int extent = extent_[a], length = a < first_axis_ ? 1 : int(float(extent) * side);
      const std::uint32_t bits = a == 0 ? r.v[1] : a == 1 ? r.v[2] : r.v[3];
      const int begin = int(uniform_below(bits, std::uint32_t(extent))) - length / 2;
      out.begin[a] = begin > 0 ? begin : 0;
      out.end[a] = begin + length < extent ? begin + length : extent;
      inside *= float(out.end[a] - out.begin[a]);
      all *= float(extent);
    }
    out.share = 1 - inside / all;
  }

  const float* table_ = nullptr;
  std::uint64_t key_ = 0, kind_key_ = 0;
  std::int64_t rows_ = 0;
  int extent_[3] = {1, 1, 1}, first_axis_ = 0;  // axes before first_axis_ do not exist
  bool mixup_ = false, cutmix_ = false;
};

}  // namespace millrace
