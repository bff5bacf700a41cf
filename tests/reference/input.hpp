// The input pass by its definition, in double, for one element at a time.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/base/rng.hpp"
#include "millrace/device/step_state.hpp"
#include "millrace/ops/input.hpp"

namespace millrace::reference {

// Axes are numbered 0 to 2 (depth, height, width). Data of fewer dimensions use the last ones.
class InputPass {
 public:
  InputPass(const InputSpec& spec, const std::vector<double>& raw, const std::vector<double>& ids,
            const StepState& state)
      : s_(spec), raw_(raw), ids_(ids), state_(state), rank_(spec.src.spatial_rank()), shift_(3 - rank_) {
    for (int a = 0; a < rank_; ++a) {
      stored_extent_[shift_ + a] = s_.src[1 + a];
      extent_[shift_ + a] = s_.subvolume.empty() ? s_.src[1 + a] : s_.subvolume[std::size_t(a)];
    }
  }

  std::vector<double> run() const {
    std::vector<double> dst;
    for (std::int64_t n = 0; n < s_.src[0]; ++n) {
      const Sample sample = draw_sample(n);
      for (std::int64_t d = 0; d < extent_[0]; ++d)
        for (std::int64_t h = 0; h < extent_[1]; ++h)
          for (std::int64_t w = 0; w < extent_[2]; ++w)
            for (std::int64_t c = 0; c < channels(); ++c) dst.push_back(element(sample, {d, h, w}, c));
    }
    return dst;
  }

 private:
  struct Position {
    std::int64_t at[3];
  };

  // The random augmentation of one sample.
  struct Sample {
    std::int64_t number = 0;
    std::int64_t offset[3] = {0, 0, 0};  // stored position minus position in the result
    bool flip[3] = {false, false, false};
    bool cutout = false;
    std::int64_t cut_begin[3] = {0, 0, 0};
    std::int64_t cut_end[3] = {1, 1, 1};
    double mix[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};  // matrix from colours of the sample to those of the result
    double brightness = 1;
    double contrast = 1;
    bool resized = false;     // random resized crop of an image
    double part[2] = {1, 1};  // share of the height and of the width
    double part_begin[2] = {0, 0};
  };

  std::int64_t channels() const { return s_.channels.empty() ? s_.src[-1] : std::int64_t(s_.channels.size()); }
  bool train() const { return s_.mode == Mode::train; }
  Random4 draw(RngPurpose purpose, std::int64_t n) const {
    return philox(rng_key(s_.seed, purpose), state_.epoch, std::uint64_t(std::int64_t(ids_[std::size_t(n)])));
  }

  Sample draw_sample(std::int64_t n) const {
    Sample out;
    out.number = n;
    for (int a = 0; a < 3; ++a) out.offset[a] = (stored_extent_[a] - extent_[a]) / 2;
    if (!train()) return out;
    draw_geometry(n, out);
    draw_colours(n, out);
    draw_resized_crop(n, out);
    return out;
  }

  void draw_geometry(std::int64_t n, Sample& out) const {
    if (s_.random_subvolume) {
      const Random4 r = draw(RngPurpose::subvolume, n);
      for (int a = shift_; a < 3; ++a)
        out.offset[a] = uniform_below(r.v[a - shift_], std::uint32_t(stored_extent_[a] - extent_[a] + 1));
    }
    if (s_.crop_pad || s_.flip) {
      const Random4 r = draw(RngPurpose::augment, n);
      for (int a = shift_; a < 3; ++a)
        out.offset[a] += std::int64_t(uniform_below(r.v[a - shift_], std::uint32_t(2 * s_.crop_pad + 1))) - s_.crop_pad;
      const bool bits[3] = {r.v[3] % 0x40000000u >= 0x20000000u, r.v[3] % 0x80000000u >= 0x40000000u,
                            r.v[3] >= 0x80000000u};
      for (int a = 0; a < rank_ && s_.flip; ++a)
        if (s_.flip_axes.empty() ? a == rank_ - 1 : std::count(s_.flip_axes.begin(), s_.flip_axes.end(), a) > 0)
          out.flip[shift_ + a] = bits[shift_ + a];
    }
    if (s_.cutout <= 0) return;
    const Random4 r = draw(RngPurpose::cutout, n);
    out.cutout = true;
    for (int a = shift_; a < 3; ++a) {
      out.cut_begin[a] = std::int64_t(uniform_below(r.v[a - shift_], std::uint32_t(extent_[a]))) - s_.cutout / 2;
      out.cut_end[a] = out.cut_begin[a] + s_.cutout;
    }
  }

  void draw_colours(std::int64_t n, Sample& out) const {
    const Random4 r = draw(RngPurpose::jitter, n);
    if (s_.brightness > 0 || s_.contrast > 0) {
      out.brightness = 1 + double(s_.brightness) * (2 * double(uniform01(r.v[0])) - 1);
      out.contrast = 1 + double(s_.contrast) * (2 * double(uniform01(r.v[1])) - 1);
    }
    if (s_.saturation <= 0 && s_.hue <= 0) return;
    // (1 - f cos) * luminance + f cos * colour + f sin * third axis, where f is the factor of the saturation.
    const double factor = 1 + double(s_.saturation) * (2 * double(uniform01(r.v[2])) - 1);
    const double angle = 2 * std::acos(-1.0) * double(s_.hue) * (2 * double(uniform01(r.v[3])) - 1);
    const double luminance[3] = {0.213, 0.715, 0.072};
    const double turn[3][3] = {{-0.213, -0.715, 0.928}, {0.143, 0.140, -0.283}, {-0.787, 0.715, 0.072}};
    for (int to = 0; to < 3; ++to)
      for (int from = 0; from < 3; ++from)
        out.mix[to][from] = luminance[from] + factor * std::cos(angle) * ((to == from) - luminance[from]) +
                            factor * std::sin(angle) * turn[to][from];
  }

  void draw_resized_crop(std::int64_t n, Sample& out) const {
    if (s_.random_resized_crop <= 0) return;
    const Random4 r = draw(RngPurpose::random_resized_crop, n);
    const double area =
        double(s_.random_resized_crop) + (1 - double(s_.random_resized_crop)) * double(uniform01(r.v[0]));
    const double shape = 0.75 + 0.25 * double(uniform01(r.v[1] << 1));
    const bool wide = r.v[1] >= 0x80000000u;
    out.resized = true;
    out.part[0] = std::min(1.0, std::sqrt(wide ? area * shape : area / shape));
    out.part[1] = std::min(1.0, std::sqrt(wide ? area / shape : area * shape));
    for (int a = 0; a < 2; ++a)
      out.part_begin[a] = double(uniform01(r.v[2 + a])) * (1 - out.part[a]) * double(extent_[1 + a]);
    out.offset[1] = out.offset[2] = 0;
  }

  // A stored value. With concatenated data sets, it is in the part that holds the channel.
  double stored(const Sample& sample, std::int64_t position, std::int64_t c) const {
    const std::int64_t positions = stored_extent_[0] * stored_extent_[1] * stored_extent_[2];
    std::int64_t begin = sample.number * positions * s_.src[-1];
    std::int64_t part = s_.src[-1];
    for (std::size_t p = 0; p < s_.parts.size(); begin += s_.parts[p++] * positions) {
      part = s_.parts[p];
      if (c < part) break;
      c -= part;
    }
    return raw_[std::size_t(begin + (s_.channels_first ? c * positions + position : position * part + c))];
  }

  // Bilinear interpolation: the weight of a stored pixel for position p along the height (a = 0) or the width (a = 1).
  double weight(const Sample& sample, int a, std::int64_t p, std::int64_t pixel) const {
    const double at = (double(p) + 0.5) * sample.part[a] + sample.part_begin[a] - 0.5;
    return std::max(0.0, 1 - std::abs(double(pixel) - std::clamp(at, 0.0, double(extent_[1 + a] - 1))));
  }

  double source(const Sample& sample, const Position& from, std::int64_t channel) const {
    for (int a = 0; a < 3; ++a)
      if (from.at[a] < 0 || from.at[a] >= stored_extent_[a]) return 0;
    if (!sample.resized)
      return stored(sample, (from.at[0] * stored_extent_[1] + from.at[1]) * stored_extent_[2] + from.at[2], channel);
    double value = 0;
    for (std::int64_t v = 0; v < extent_[1]; ++v)
      for (std::int64_t u = 0; weight(sample, 0, from.at[1], v) > 0 && u < extent_[2]; ++u)
        value += weight(sample, 0, from.at[1], v) * weight(sample, 1, from.at[2], u) *
                 stored(sample, v * extent_[2] + u, channel);
    return value;
  }

  double scaled(const Sample& sample, const Position& from, std::int64_t c) const {
    double value = source(sample, from, s_.channels.empty() ? c : s_.channels[std::size_t(c)]);
    value *= s_.channel_scale.empty() ? double(s_.scale) : double(s_.channel_scale[std::size_t(c)]);
    value += s_.channel_offset.empty() ? double(s_.offset) : double(s_.channel_offset[std::size_t(c)]);
    return s_.transform == Transform::log1p ? std::log1p(value) : value;
  }

  double element(const Sample& sample, const Position& to, std::int64_t c) const {
    Position from;
    bool cut = sample.cutout;
    for (int a = 0; a < 3; ++a) {
      from.at[a] = (sample.flip[a] ? extent_[a] - 1 - to.at[a] : to.at[a]) + sample.offset[a];
      cut = cut && to.at[a] >= sample.cut_begin[a] && to.at[a] < sample.cut_end[a];
    }
    if (cut) return 0;
    double value = channels() == 3 ? 0 : scaled(sample, from, c);
    for (std::int64_t k = 0; channels() == 3 && k < 3; ++k)
      if (sample.mix[c][k] != 0) value += sample.mix[c][k] * scaled(sample, from, k);
    value *= sample.brightness;
    if (!s_.mean.empty()) value -= double(s_.mean[std::size_t(c)]);
    value *= sample.contrast;
    return s_.std.empty() ? value : value / double(s_.std[std::size_t(c)]);
  }

  const InputSpec& s_;
  const std::vector<double>& raw_;
  const std::vector<double>& ids_;
  const StepState& state_;
  const int rank_;
  const int shift_;
  std::int64_t stored_extent_[3] = {1, 1, 1};
  std::int64_t extent_[3] = {1, 1, 1};
};

inline std::vector<double> input(const InputSpec& spec, const std::vector<double>& raw, const std::vector<double>& ids,
                                 const StepState& state) {
  return InputPass(spec, raw, ids, state).run();
}

}  // namespace millrace::reference
