// The input pass by its definition, in double, one element after the other.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/base/rng.hpp"
#include "millrace/device/step_state.hpp"
#include "millrace/ops/input.hpp"

namespace millrace::reference {

inline std::vector<double> input(const InputSpec& s, const std::vector<double>& raw, const std::vector<double>& ids,
                                 const StepState& state) {
  const int rank = s.src.spatial_rank(), shift = 3 - rank;
  const std::int64_t stored_channels = s.src[-1],
                     channels = s.channels.empty() ? stored_channels : std::int64_t(s.channels.size());
  std::int64_t stored_extent[3] = {1, 1, 1}, extent[3] = {1, 1, 1};
  for (int a = 0; a < rank; ++a)
    stored_extent[shift + a] = s.src[1 + a],
                          extent[shift + a] = s.subvolume.empty() ? s.src[1 + a] : s.subvolume[std::size_t(a)];
  const std::int64_t positions = stored_extent[0] * stored_extent[1] * stored_extent[2];
  std::vector<double> dst;
  for (std::int64_t n = 0; n < s.src[0]; ++n) {
    std::int64_t by[3] = {0, 0, 0};
    bool flip[3] = {false, false, false};
    for (int a = 0; a < 3; ++a) by[a] = (stored_extent[a] - extent[a]) / 2;
    if (s.mode == Mode::train && s.random_subvolume) {
      const Random4 r =
          philox(rng_key(s.seed, RngPurpose::subvolume), state.epoch, std::uint64_t(std::int64_t(ids[std::size_t(n)])));
      for (int a = 0; a < rank; ++a)
        by[shift + a] = uniform_below(r.v[a], std::uint32_t(stored_extent[shift + a] - extent[shift + a] + 1));
    }
    if (s.mode == Mode::train && (s.crop_pad || s.flip)) {
      const Random4 r =
          philox(rng_key(s.seed, RngPurpose::augment), state.epoch, std::uint64_t(std::int64_t(ids[std::size_t(n)])));
      for (int a = 0; a < rank; ++a)
        by[shift + a] += std::int64_t(uniform_below(r.v[a], std::uint32_t(2 * s.crop_pad + 1))) - s.crop_pad;
      const bool bits[3] = {r.v[3] % 0x40000000u >= 0x20000000u, r.v[3] % 0x80000000u >= 0x40000000u,
                            r.v[3] >= 0x80000000u};
      for (int a = 0; a < rank && s.flip; ++a)
        if (s.flip_axes.empty() ? a == rank - 1 : std::count(s.flip_axes.begin(), s.flip_axes.end(), a) > 0)
          flip[shift + a] = bits[shift + a];
    }
    std::int64_t cut_begin[3] = {0, 0, 0}, cut_end[3] = {1, 1, 1};
    bool cuts = false;
    double light = 1, spread = 1;
    const auto draw = [&](RngPurpose purpose) {
      return philox(rng_key(s.seed, purpose), state.epoch, std::uint64_t(std::int64_t(ids[std::size_t(n)])));
    };
    if (s.mode == Mode::train && s.cutout > 0) {
      const Random4 r = draw(RngPurpose::cutout);
      cuts = true;
      for (int a = 0; a < rank; ++a) {
        cut_begin[shift + a] = std::int64_t(uniform_below(r.v[a], std::uint32_t(extent[shift + a]))) - s.cutout / 2;
        cut_end[shift + a] = cut_begin[shift + a] + s.cutout;
      }
    }
    // Red, green and blue of a pixel by those before: (1 - s cos) luminance + s cos + s sin of the third.
    double mix[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    if (s.mode == Mode::train && (s.saturation > 0 || s.hue > 0)) {
      const Random4 r = draw(RngPurpose::jitter);
      const double strong = 1 + double(s.saturation) * (2 * double(uniform01(r.v[2])) - 1);
      const double angle = 2 * std::acos(-1.0) * double(s.hue) * (2 * double(uniform01(r.v[3])) - 1);
      const double even[3] = {0.213, 0.715, 0.072};
      const double turn[3][3] = {{-0.213, -0.715, 0.928}, {0.143, 0.140, -0.283}, {-0.787, 0.715, 0.072}};
      for (int to = 0; to < 3; ++to)
        for (int from = 0; from < 3; ++from)
          mix[to][from] = even[from] + strong * std::cos(angle) * ((to == from) - even[from]) +
                          strong * std::sin(angle) * turn[to][from];
    }
    if (s.mode == Mode::train && (s.brightness > 0 || s.contrast > 0)) {
      const Random4 r = draw(RngPurpose::jitter);
      light = 1 + double(s.brightness) * (2 * double(uniform01(r.v[0])) - 1);
      spread = 1 + double(s.contrast) * (2 * double(uniform01(r.v[1])) - 1);
    }
    double part[2] = {1, 1}, begin[2] = {0, 0};
    const bool has_random_resized_crop = s.mode == Mode::train && s.random_resized_crop > 0;
    if (has_random_resized_crop) {
      const Random4 r = draw(RngPurpose::random_resized_crop);
      const double area =
          double(s.random_resized_crop) + (1 - double(s.random_resized_crop)) * double(uniform01(r.v[0]));
      const double shape = 0.75 + 0.25 * double(uniform01(r.v[1] << 1));
      const bool wide = r.v[1] >= 0x80000000u;
      part[0] = std::min(1.0, std::sqrt(wide ? area * shape : area / shape));
      part[1] = std::min(1.0, std::sqrt(wide ? area / shape : area * shape));
      for (int a = 0; a < 2; ++a) begin[a] = double(uniform01(r.v[2 + a])) * (1 - part[a]) * double(extent[1 + a]);
      by[1] = by[2] = 0;
    }
    // Of the part that holds the channel.
    const auto stored = [&](std::int64_t position, std::int64_t c) {
      std::int64_t begin = n * positions * stored_channels, part = stored_channels;
      for (std::size_t p = 0; p < s.parts.size(); begin += s.parts[p++] * positions) {
        part = s.parts[p];
        if (c < part) break;
        c -= part;
      }
      return raw[std::size_t(begin + (s.channels_first ? c * positions + position : position * part + c))];
    };
    // Every pixel has the weight of its triangle; p of axis 0 or 1 of an image.
    const auto weight = [&](int a, std::int64_t p, std::int64_t pixel) {
      const double at = (double(p) + 0.5) * part[a] + begin[a] - 0.5;
      return std::max(0.0, 1 - std::abs(double(pixel) - std::clamp(at, 0.0, double(extent[1 + a] - 1))));
    };
    for (std::int64_t d = 0; d < extent[0]; ++d)
      for (std::int64_t h = 0; h < extent[1]; ++h)
        for (std::int64_t w = 0; w < extent[2]; ++w)
          for (std::int64_t c = 0; c < channels; ++c) {
            const std::int64_t z = (flip[0] ? extent[0] - 1 - d : d) + by[0],
                               y = (flip[1] ? extent[1] - 1 - h : h) + by[1],
                               x = (flip[2] ? extent[2] - 1 - w : w) + by[2];
            const auto transformed = [&](std::int64_t c) {
              const std::int64_t from = s.channels.empty() ? c : s.channels[std::size_t(c)];
              double value = 0;
              if (z >= 0 && z < stored_extent[0] && y >= 0 && y < stored_extent[1] && x >= 0 && x < stored_extent[2]) {
                value = has_random_resized_crop ? 0 : stored((z * stored_extent[1] + y) * stored_extent[2] + x, from);
                for (std::int64_t v = 0; has_random_resized_crop && v < extent[1]; ++v)
                  for (std::int64_t u = 0; weight(0, y, v) > 0 && u < extent[2]; ++u)
                    value += weight(0, y, v) * weight(1, x, u) * stored(v * extent[2] + u, from);
              }
              value *= s.channel_scale.empty() ? double(s.scale) : double(s.channel_scale[std::size_t(c)]);
              value += s.channel_offset.empty() ? double(s.offset) : double(s.channel_offset[std::size_t(c)]);
              return s.transform == Transform::log1p ? std::log1p(value) : value;
            };
            double value = channels == 3 ? 0 : transformed(c);
            for (std::int64_t k = 0; channels == 3 && k < 3; ++k)
              if (mix[c][k] != 0) value += mix[c][k] * transformed(k);
            value *= light;
            if (!s.mean.empty()) value -= double(s.mean[std::size_t(c)]);
            value *= spread;
            if (!s.std.empty()) value /= double(s.std[std::size_t(c)]);
            const std::int64_t to[3] = {d, h, w};
            bool cut = cuts;
            for (int a = 0; a < 3; ++a) cut = cut && to[a] >= cut_begin[a] && to[a] < cut_end[a];
            dst.push_back(cut ? 0 : value);
          }
  }
  return dst;
}

}  // namespace millrace::reference
