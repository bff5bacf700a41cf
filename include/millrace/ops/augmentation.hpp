// Data augmentation of the input pass. In training, the augmentation of a sample depends only on its id and the epoch.
// All backends share this code, so they draw the same values. Axes are depth, height and width. Samples of fewer
// dimensions have an extent of 1 along the missing leading axes.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "millrace/base/dispatch_dtype.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/device/step_state.hpp"
#include "millrace/ops/input.hpp"

namespace millrace {

// Depth, height and width of samples of this shape. A missing axis has the extent 1.
inline std::array<std::int64_t, 3> spatial_extents(const Shape& shape) {
  std::array<std::int64_t, 3> out{1, 1, 1};
  const int spatial = shape.spatial_rank();
  for (int a = 0; a < spatial; ++a) out[std::size_t(3 - spatial + a)] = shape[1 + a];
  return out;
}

// Calls body(T{}) with the C++ type of the stored samples. int64 is not supported; input_channels() rejects it.
template <class Body>
void dispatch_sample_dtype(DType raw, const Body& body) {
  dispatch_any_dtype(raw, [&](auto zero) {
    if constexpr (std::is_same_v<decltype(zero), std::int64_t>)
      fail(Exit::internal, "internal error: the input pass got int64 samples");
    else
      body(zero);
  });
}

// The augmentation of one sample. Its functions take positions of any integer type Index: 64 bits on a CPU, 32 bits in
// a kernel.
struct Augmentation {
  std::int64_t by[3] = {0, 0, 0};  // dst position p, after the flip within dst, is read from src position p + by
  bool flip[3] = {false, false, false};
  std::int64_t cut_begin[3] = {0, 0, 0}, cut_end[3] = {0, 0, 0};  // cutout: normalised values in this box of dst are 0
  // With a random resized crop, dst position p, after the flip, is read from (p + 0.5) * part + begin - 0.5. Index 0 is
  // the height, index 1 the width.
  bool random_resized_crop = false;
  float begin[2] = {0, 0}, part[2] = {1, 1};
  // Saturation factor times the cosine and the sine of the hue angle; see ColorJitter.
  float saturation_cos = 1, saturation_sin = 0;
  float gain = 1, lift = 0;  // brightness and contrast: normalised value -> value * gain + shift of its channel * lift

  MR_HOST_DEVICE bool has_color_jitter() const { return saturation_cos != 1 || saturation_sin != 0; }

  // The position that dst position p of an axis had before the flip. extent: the extent of dst along the axis.
  template <class Index>
  MR_HOST_DEVICE Index unflipped(int axis, Index p, Index extent) const {
    return flip[axis] ? extent - 1 - p : p;
  }
  // The src position from which dst position p of an axis is read. Positions outside of src are padding.
  template <class Index>
  MR_HOST_DEVICE Index source_position(int axis, Index p, Index extent) const {
    return unflipped(axis, p, extent) + Index(by[axis]);
  }

  // A position between two pixels of one axis: pixel `first` with weight 1 - share, and the pixel after it with weight
  // `share`.
  template <class Index>
  struct InterpolationPoint {
    Index first;
    float share;
  };
  template <class Index>
  MR_HOST_DEVICE InterpolationPoint<Index> interpolation_point(int axis, Index p, Index extent) const {
    const float last = float(extent - 1), place = (float(p) + 0.5f) * part[axis] + begin[axis] - 0.5f;
    const float at = place < 0 ? 0 : place > last ? last : place;
    Index first = Index(at);
    if (first > extent - 2 && first > 0) first = extent - 2;  // so that a pixel follows
    return {first, extent > 1 ? at - float(first) : 0};
  }
  // The pixel of src, counted in its extents, whose label the position `at` of dst gets; -1: it is outside of src. All
  // three arrays are depth, height and width. A random resized crop takes the nearest pixel.
  template <class Index>
  MR_HOST_DEVICE Index source_place(const Index (&at)[3], const Index* dst, const Index* src) const {
    Index place = 0;
    for (int a = 0; a < 3; ++a) {
      Index from = source_position(a, at[a], dst[a]);
      if (random_resized_crop && a > 0) {
        const auto point = interpolation_point(a - 1, unflipped(a, at[a], dst[a]), dst[a]);
        from = point.first + Index(point.share >= 0.5f);
      }
      if (from < 0 || from >= src[a]) return -1;
      place = place * src[a] + from;
    }
    return place;
  }
  // Bilinear interpolation between four pixels. row, column: the interpolation point along the height and the width.
  template <class Index>
  MR_HOST_DEVICE static float interpolate(const InterpolationPoint<Index>& row, const InterpolationPoint<Index>& column,
                                          float upper_left, float upper_right, float lower_left, float lower_right) {
    const float above = upper_left * (1 - column.share) + upper_right * column.share;
    const float below = lower_left * (1 - column.share) + lower_right * column.share;
    return above * (1 - row.share) + below * row.share;
  }

  template <class Index>
  MR_HOST_DEVICE bool cut(Index z, Index y, Index x) const {
    return z >= Index(cut_begin[0]) && z < Index(cut_end[0]) && y >= Index(cut_begin[1]) && y < Index(cut_end[1]) &&
           x >= Index(cut_begin[2]) && x < Index(cut_end[2]);
  }
};

// Saturation and hue of a sample of three channels. They map the normalised values y of a pixel to by * y + plus.
struct ColorMatrix {
  float by[3][3], plus[3];
  // The new value of channel c. It avoids by[c], because a dynamic index would move the matrix to memory on a GPU.
  MR_HOST_DEVICE float of(int c, const float (&y)[3]) const {
    const float r = c == 0   ? by[0][0]
                    : c == 1 ? by[1][0]
                             : by[2][0],
                g = c == 0   ? by[0][1]
                    : c == 1 ? by[1][1]
                             : by[2][1],
                b = c == 0   ? by[0][2]
                    : c == 1 ? by[1][2]
                             : by[2][2],
                p = c == 0   ? plus[0]
                    : c == 1 ? plus[1]
                             : plus[2];
    return r * y[0] + g * y[1] + b * y[2] + p;
  }
};

// Makes the ColorMatrix of a sample.
class ColorJitter {
 public:
  explicit ColorJitter(const std::vector<InputChannel>& channels) {
    for (std::size_t c = 0; c < 3 && channels.size() == 3; ++c) {
      unit_[c] = channels[c].unit;
      shift_[c] = channels[c].shift;
    }
  }
  // The matrices saturate and hueRotate of feColorMatrix (W3C Filter Effects), converted from values to normalised
  // values, (value - mean) / std.
  MR_HOST_DEVICE ColorMatrix mix(const Augmentation& move) const {
    const float luminance[3] = {0.213f, 0.715f, 0.072f};
    const float turn[3][3] = {{-0.213f, -0.715f, 0.928f}, {0.143f, 0.140f, -0.283f}, {-0.787f, 0.715f, 0.072f}};
    ColorMatrix out;
    for (int to = 0; to < 3; ++to) {
      out.plus[to] = shift_[to];
      for (int from = 0; from < 3; ++from) {
        const float same = to == from ? 1 : 0;
        const float by =
            luminance[from] + move.saturation_cos * (same - luminance[from]) + move.saturation_sin * turn[to][from];
        out.by[to][from] = by * unit_[to] / unit_[from];
        out.plus[to] -= out.by[to][from] * shift_[from];
      }
    }
    return out;
  }

 private:
  float unit_[3] = {1, 1, 1}, shift_[3] = {0, 0, 0};
};

// Draws the Augmentation of each sample.
class Augmenter {
 public:
  explicit Augmenter(const InputSpec& s)
      : crop_key_(rng_key(s.seed, RngPurpose::augment)),
        cut_key_(rng_key(s.seed, RngPurpose::cutout)),
        jitter_key_(rng_key(s.seed, RngPurpose::jitter)),
        resized_crop_key_(rng_key(s.seed, RngPurpose::random_resized_crop)),
        subvolume_key_(rng_key(s.seed, RngPurpose::subvolume)),
        crop_pad_(s.crop_pad),
        cutout_(s.cutout),
        brightness_(s.brightness),
        contrast_(s.contrast),
        saturation_(s.saturation),
        hue_(s.hue),
        random_resized_crop_(s.random_resized_crop),
        spatial_(s.src.spatial_rank()),
        moves_(s.random_subvolume) {
    const std::array<std::int64_t, 3> src = spatial_extents(s.src);
    const std::array<std::int64_t, 3> dst = spatial_extents(s.dst());
    for (std::size_t a = 0; a < 3; ++a) {
      extent_[a] = dst[a];
      room_[a] = src[a] - dst[a];
    }
    if (s.flip && s.flip_axes.empty()) flips_ = 4;
    if (s.flip)
      for (const std::int64_t axis : s.flip_axes) flips_ |= 1u << (3 - spatial_ + int(axis));
    if (random_resized_crop_ > 0 && (spatial_ != 2 || random_resized_crop_ > 1 || !s.subvolume.empty()))
      fail(Exit::config,
           "input: random_resized_crop = {:g} is not possible for samples {} (it needs images without a subvolume, and "
           "a share of at most 1)",
           random_resized_crop_, s.src.str());
    moves_ = moves_ && room_[0] + room_[1] + room_[2] > 0;
    on_ = s.mode == Mode::train && spatial_ > 0 &&
          (crop_pad_ > 0 || flips_ || cutout_ > 0 || jitters() || has_random_resized_crop() || moves_);
  }

  MR_HOST_DEVICE bool on() const { return on_; }
  bool has_random_resized_crop() const { return random_resized_crop_ > 0; }

  // The augmentation without random draws: the subvolume is in the middle of the sample.
  MR_HOST_DEVICE Augmentation without_randomness() const {
    Augmentation out;
    for (int a = 0; a < 3; ++a) out.by[a] = room_[a] / 2;
    return out;
  }

  // The augmentation of one row of a batch. Reads ids and state only if a random augmentation is on.
  MR_HOST_DEVICE Augmentation of_row(const StepState* state, const std::int64_t* ids, std::int64_t row) const {
    return on_ ? sample(state->epoch, ids[row]) : without_randomness();
  }

  MR_HOST_DEVICE Augmentation sample(std::uint64_t epoch, std::int64_t id) const {
    Augmentation out = without_randomness();
    if (!on_) return out;
    if (moves_) {
      const Random4 r = philox(subvolume_key_, epoch, std::uint64_t(id));
      for (int a = 0; a < 3; ++a)
        if (const int axis = a - 3 + spatial_; axis >= 0)
          out.by[a] = std::int64_t(uniform_below(word(r, axis), std::uint32_t(room_[a] + 1)));
    }
    if (crop_pad_ > 0 || flips_) {
      const Random4 r = philox(crop_key_, epoch, std::uint64_t(id));
      for (int a = 0; a < 3 && crop_pad_ > 0 && !(random_resized_crop_ > 0); ++a)
        if (const int axis = a - 3 + spatial_; axis >= 0)
          out.by[a] += std::int64_t(uniform_below(word(r, axis), std::uint32_t(2 * crop_pad_ + 1))) - crop_pad_;
      for (int a = 0; a < 3; ++a) out.flip[a] = (flips_ >> a & 1) && (r.v[3] >> (29 + a) & 1);
    }
    if (cutout_ > 0) {
      const Random4 r = philox(cut_key_, epoch, std::uint64_t(id));
      for (int a = 0; a < 3; ++a) {
        out.cut_end[a] = 1;
        if (const int axis = a - 3 + spatial_; axis >= 0) {
          out.cut_begin[a] = std::int64_t(uniform_below(word(r, axis), std::uint32_t(extent_[a]))) - cutout_ / 2;
          out.cut_end[a] = out.cut_begin[a] + cutout_;
        }
      }
    }
    if (random_resized_crop_ > 0) {
      const Random4 r = philox(resized_crop_key_, epoch, std::uint64_t(id));
      const float area = random_resized_crop_ + (1 - random_resized_crop_) * uniform01(r.v[0]),
                  shape = 0.75f + 0.25f * uniform01(r.v[1] << 1);  // shorter side divided by longer side
      const float longer = sqrtf(area / shape), shorter = sqrtf(area * shape);
      const bool wide = r.v[1] >> 31;
      out.random_resized_crop = true;
      for (int axis = 0; axis < 2; ++axis) {
        const float part = (axis == 1) == wide ? longer : shorter;
        out.part[axis] = part < 1 ? part : 1;
        out.begin[axis] = uniform01(axis == 0 ? r.v[2] : r.v[3]) * (1 - out.part[axis]) * float(extent_[1 + axis]);
      }
    }
    if (jitters()) {
      const Random4 r = philox(jitter_key_, epoch, std::uint64_t(id));
      const float light = 1 + brightness_ * (2 * uniform01(r.v[0]) - 1),
                  spread = 1 + contrast_ * (2 * uniform01(r.v[1]) - 1);
      out.gain = spread * light;
      out.lift = spread * (1 - light);
      const float saturation_cos = 1 + saturation_ * (2 * uniform01(r.v[2]) - 1),
                  angle = 6.2831853f * hue_ * (2 * uniform01(r.v[3]) - 1);
      out.saturation_cos = saturation_cos * cosf(angle);
      out.saturation_sin = saturation_cos * sinf(angle);
    }
    return out;
  }

 private:
  // r.v[axis], without a dynamic index, which would move the words to memory on a GPU.
  MR_HOST_DEVICE static std::uint32_t word(const Random4& r, int axis) {
    return axis == 0 ? r.v[0] : axis == 1 ? r.v[1] : r.v[2];
  }
  MR_HOST_DEVICE bool jitters() const { return brightness_ > 0 || contrast_ > 0 || saturation_ > 0 || hue_ > 0; }

  std::uint64_t crop_key_, cut_key_, jitter_key_, resized_crop_key_, subvolume_key_;
  std::int64_t crop_pad_, cutout_;
  std::int64_t extent_[3] = {1, 1, 1}, room_[3] = {0, 0, 0};  // extents of dst; extents of src minus those of dst
  float brightness_, contrast_, saturation_, hue_, random_resized_crop_;
  int spatial_;
  std::uint32_t flips_ = 0;  // bit a: axis a may be flipped
  bool moves_, on_ = false;
};

}  // namespace millrace
