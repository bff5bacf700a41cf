// Mixup and cutmix by their definition (ops/mix.hpp), in double.
#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "millrace/ops/mix.hpp"

namespace millrace::reference {

// The quantiles of Beta(alpha, alpha), for the values of alpha that have a formula.
inline double beta_quantile(double alpha, double probability) {
  if (alpha == 1) return probability;
  return std::pow(std::sin(std::numbers::pi / 2 * probability), 2);  // alpha = 1/2
}

struct MixedRow {
  std::int64_t partner = -1;
  double share = 1;
  bool box = false;
  std::int64_t begin[3] = {0, 0, 0}, end[3] = {1, 1, 1};  // by spatial axis of the sample
};

inline std::vector<MixedRow> mixed_rows(const MixSpec& s, const std::vector<double>& ids,
                                        const std::vector<double>& labels, std::uint64_t epoch) {
  std::vector<MixedRow> out(ids.size());
  const std::uint64_t key = rng_key(s.options.seed, RngPurpose::mix);
  const bool second = philox(rng_key(s.options.seed, RngPurpose::mix_kind), epoch, std::uint64_t(ids[0])).v[0] >> 31;
  for (std::size_t r = 0; r < out.size(); ++r) {
    const std::size_t partner = (r + 1) % out.size();
    if (partner == r || labels[r] < 0 || labels[partner] < 0) continue;
    MixedRow& row = out[r];
    row.partner = std::int64_t(partner);
    row.box = s.options.cutmix > 0 && !(s.options.mixup > 0 && second);
    const Random4 random = philox(key, epoch, std::uint64_t(ids[r]));
    const double alpha = double(row.box ? s.options.cutmix : s.options.mixup);
    row.share = beta_quantile(alpha, (std::floor(random.v[0] / 1048576.0) + 0.5) / 4096);
    if (!row.box) continue;
    const int axes = s.src.rank - 2;
    double inside = 1, all = 1;
    for (int a = 0; a < axes; ++a) {
      const std::int64_t extent = s.src[1 + a];
      const auto length = std::int64_t(double(extent) * std::pow(1 - row.share, 1.0 / axes));
      const auto centre = std::int64_t(double(random.v[4 - axes + a]) / 4294967296.0 * double(extent));
      row.begin[a] = std::max<std::int64_t>(0, centre - length / 2);
      row.end[a] = std::min(extent, centre - length / 2 + length);
      inside *= double(row.end[a] - row.begin[a]);
      all *= double(extent);
    }
    row.share = 1 - inside / all;
  }
  return out;
}

inline std::vector<double> mix(const MixSpec& s, const std::vector<double>& x, const std::vector<MixedRow>& rows) {
  std::vector<double> out = x;
  const auto width = std::size_t(s.src.row_count());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].partner < 0) continue;
    const double* other = x.data() + std::size_t(rows[r].partner) * width;
    for (std::size_t i = 0; i < width; ++i) {
      double& value = out[r * width + i];
      if (!rows[r].box) {
        value = rows[r].share * value + (1 - rows[r].share) * other[i];
        continue;
      }
      bool inside = true;
      std::int64_t place = std::int64_t(i) / s.src[-1];
      for (int a = s.src.rank - 3; a >= 0; --a) {
        const std::int64_t at = place % s.src[1 + a];
        place /= s.src[1 + a];
        inside = inside && at >= rows[r].begin[a] && at < rows[r].end[a];
      }
      if (inside) value = other[i];
    }
  }
  return out;
}

}  // namespace millrace::reference
