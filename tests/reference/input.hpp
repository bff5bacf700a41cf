// The input pass by its definition, in double, one element after the other.
#pragma once
#include <vector>

#include "millrace/base/rng.hpp"
#include "millrace/device/step_state.hpp"
#include "millrace/ops/input.hpp"

namespace millrace::reference {

inline std::vector<double> input(const InputSpec& s, const std::vector<double>& raw, const std::vector<double>& ids,
                                 const StepState& state) {
  const int rank = s.src.spatial_rank(), shift = 3 - rank;
  const std::int64_t channels = s.src[-1];
  std::int64_t extent[3] = {1, 1, 1};
  for (int a = 0; a < rank; ++a) extent[shift + a] = s.src[1 + a];
  const std::int64_t positions = extent[0] * extent[1] * extent[2];
  std::vector<double> dst;
  for (std::int64_t n = 0; n < s.src[0]; ++n) {
    std::int64_t by[3] = {0, 0, 0};
    bool flip = false;
    if (s.mode == Mode::train && (s.crop_pad || s.flip)) {
      const Random4 r =
          philox(rng_key(s.seed, Purpose::augment), state.epoch, std::uint64_t(std::int64_t(ids[std::size_t(n)])));
      for (int a = 0; a < rank; ++a)
        by[shift + a] = std::int64_t(below(r.v[a], std::uint32_t(2 * s.crop_pad + 1))) - s.crop_pad;
      flip = s.flip && r.v[3] >= 0x80000000u;
    }
    for (std::int64_t d = 0; d < extent[0]; ++d)
      for (std::int64_t h = 0; h < extent[1]; ++h)
        for (std::int64_t w = 0; w < extent[2]; ++w)
          for (std::int64_t c = 0; c < channels; ++c) {
            const std::int64_t z = d + by[0], y = h + by[1], x = (flip ? extent[2] - 1 - w : w) + by[2];
            double value = 0;
            if (z >= 0 && z < extent[0] && y >= 0 && y < extent[1] && x >= 0 && x < extent[2]) {
              const std::int64_t position = (z * extent[1] + y) * extent[2] + x;
              value = raw[std::size_t(n * positions * channels +
                                      (s.channels_first ? c * positions + position : position * channels + c))];
            }
            value *= double(s.scale);
            if (!s.mean.empty()) value -= double(s.mean[std::size_t(c)]);
            if (!s.std.empty()) value /= double(s.std[std::size_t(c)]);
            dst.push_back(value);
          }
  }
  return dst;
}

}  // namespace millrace::reference
