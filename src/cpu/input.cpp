// The input pass. It processes one line of the last spatial axis at a time. If a line is cropped, flipped or not stored
// channels-last, it is first reordered in its raw type. Then one loop converts and normalises it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"
#include "millrace/ops/augmentation.hpp"

namespace millrace::cpu {
namespace {

template <class Raw>
__attribute__((always_inline)) inline void normalise_all(float* __restrict to, const Raw* __restrict raw,
                                                         const float* __restrict factor, const float* __restrict offset,
                                                         std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = float(raw[i]) * factor[i] + offset[i];
}
#define MR_NORMALISE(Raw)                                                                              \
  MR_TARGET_CLONES void normalise(float* to, const Raw* raw, const float* factor, const float* offset, \
                                  std::int64_t n) {                                                    \
    normalise_all(to, raw, factor, offset, n);                                                         \
  }
MR_NORMALISE(std::uint8_t)
MR_NORMALISE(std::int8_t)
MR_NORMALISE(std::uint16_t)
MR_NORMALISE(std::int16_t)
MR_NORMALISE(std::int32_t)
MR_NORMALISE(float)
MR_NORMALISE(double)
#undef MR_NORMALISE

void normalise(float* to, const void* raw, DType type, const float* factor, const float* offset, std::int64_t n) {
  dispatch_sample_dtype(type, [&](auto zero) {
    using Raw = decltype(zero);
    if constexpr (std::is_same_v<Raw, f16> || std::is_same_v<Raw, bf16>) {
      Tile values;
      to_float(values, raw, type, n);
      normalise(to, values.v, factor, offset, n);
    } else {
      normalise(to, static_cast<const Raw*>(raw), factor, offset, n);
    }
  });
}

// y = ln(1 + x) * gain + shift
void transform_log1p(float* y, const float* gain, const float* shift, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = std::log1p(y[i]) * gain[i] + shift[i];
}

// Applies a ColorMatrix to n values: whole pixels of three channels.
MR_TARGET_CLONES void mix_colours(float* y, std::int64_t n, const ColorMatrix& mix) {
  const ColorMatrix m = mix;
  for (std::int64_t i = 0; i < n; i += 3) {
    const float r = y[i], g = y[i + 1], b = y[i + 2];
    for (int c = 0; c < 3; ++c) y[i + c] = m.by[c][0] * r + m.by[c][1] * g + m.by[c][2] * b + m.plus[c];
  }
}

// Where the elements of a line are stored. Channel c of pixel x is element first + x * pixel_step + c * channel_step.
// If the channels are not evenly spaced, it is found with `each`, `row`, `position` and `direction` instead. Pixels
// outside of [begin, end) are padding.
struct Line {
  std::int64_t first = 0, pixel_step = 0, channel_step = 0, begin = 0, end = 0;
  const InputStrides::Channel* each = nullptr;
  std::int64_t row = 0;                      // first element of the row
  std::int64_t position = 0, direction = 1;  // pixel x is read from position + x * direction of src
};

// Copies `n` elements, in whole pixels from x on, to channels-last order. known_channels: the number of channels if it
// is known at compile time, otherwise 0.
template <class Raw, int known_channels>
void gather(Raw* to, const Raw* from, const Line& line, std::int64_t channels, std::int64_t x, std::int64_t n) {
  const std::int64_t count = known_channels ? known_channels : channels;
  for (std::int64_t i = 0; i + count <= n; i += count, ++x) {
    const Raw* pixel = from + line.first + x * line.pixel_step;
    for (std::int64_t k = 0; k < count; ++k) to[i + k] = pixel[k * line.channel_step];
  }
}

// The same for channels that are not evenly spaced, for any n elements from channel c of pixel x on.
template <class Raw>
void gather_each(Raw* to, const Raw* from, const Line& line, std::int64_t channels, std::int64_t x, std::int64_t c,
                 std::int64_t n) {
  for (std::int64_t k = 0; k < std::min(n, channels); ++k) {
    const std::int64_t channel = (c + k) % channels, pixel = x + (c + k) / channels;
    const auto [first, step] = line.each[channel];
    const Raw* at = from + line.row + first + (line.position + pixel * line.direction) * step;
    for (std::int64_t i = k; i < n; i += channels, at += line.direction * step) to[i] = *at;
  }
}

// Copies elements [at, at + n) of the line to channels-last order, in runs: the rest of a pixel, whole pixels, or the
// beginning of a pixel. A run lies either in the image or in the padding.
template <class Raw>
void reorder_line(Raw* to, const Raw* from, const Line& line, std::int64_t channels, std::int64_t at, std::int64_t n) {
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t x = (at + i) / channels, c = (at + i) % channels;
    const bool inside = x >= line.begin && x < line.end;
    const std::int64_t run_end = inside ? line.end : x < line.begin ? line.begin : n + at;  // in pixels
    std::int64_t run = std::min(n - i, run_end * channels - at - i);
    if (!inside) {
      std::fill_n(to + i, run, Raw(0));
    } else if (line.each) {
      gather_each(to + i, from, line, channels, x, c, run);
    } else if (line.channel_step == 1 && line.pixel_step == channels) {
      std::copy_n(from + line.first + x * channels + c, run, to + i);
    } else if (c > 0 || run < channels) {
      run = std::min(run, channels - c);
      const Raw* pixel = from + line.first + x * line.pixel_step + c * line.channel_step;
      for (std::int64_t k = 0; k < run; ++k) to[i + k] = pixel[k * line.channel_step];
    } else {
      run -= run % channels;
      channels == 1   ? gather<Raw, 1>(to + i, from, line, channels, x, run)
      : channels == 3 ? gather<Raw, 3>(to + i, from, line, channels, x, run)
                      : gather<Raw, 0>(to + i, from, line, channels, x, run);
    }
    i += run;
  }
}

class Input : public Op {
 public:
  explicit Input(const InputSpec& spec)
      : spec_(spec),
        channels_(spec.used_channels()),
        values_(input_channels(spec)),
        strides_(input_strides(spec)),
        augmenter_(spec),
        color_jitter_(values_),
        stored_(spatial_extents(spec.src)),
        extent_(spatial_extents(spec.dst())) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    // The parameters of the channels, repeated for one tile more than the channels, because a tile may begin at any
    // channel.
    for (std::int64_t i = 0; i < channels_ + tile_count; ++i) {
      const InputChannel& c = values_[std::size_t(i % channels_)];
      factor_.push_back(c.factor);
      offset_.push_back(c.offset);
      gain_.push_back(c.gain);
      shift_.push_back(c.shift);
    }
    const bool changes_values = spec_.cutout > 0 || spec_.brightness > 0 || spec_.contrast > 0 ||
                                spec_.saturation > 0 || spec_.hue > 0 || spec_.random_resized_crop > 0;
    copies_ = spec_.raw == DType::f32 && spec_.dtype == DType::f32 && spec_.transform == Transform::none &&
              spec_.padded_channels == 0 && !changes_values &&
              std::all_of(values_.begin(), values_.end(),
                          [](const InputChannel& c) { return c.factor == 1 && c.offset == 0; });
  }

  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return is_copy() ? "copy" : "threads"; }
  bool is_copy() const override {
    return copies_ && strides_.contiguous && spec_.dst() == spec_.src && spec_.crop_pad == 0 && !spec_.flip;
  }

  void forward(const OpArgs& args) override {
    const std::int64_t lines = extent_[0] * extent_[1], line_count = extent_[2] * channels_;
    parallel_ranges(spec_.src[0] * lines, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, line_count)),
                    [&](std::int64_t begin, std::int64_t end) {
                      Augmentation move;
                      std::int64_t row = -1;
                      for (std::int64_t i = begin; i < end; ++i) {
                        if (i / lines != row) {
                          row = i / lines;
                          move = augmenter_.of_row(args.state, args.src[1].as<std::int64_t>(), row);
                        }
                        forward_line(args, row, i % lines, move);
                      }
                    });
  }
  void backward(const OpArgs&) override {}

 private:
  void forward_line(const OpArgs& args, std::int64_t row, std::int64_t number, const Augmentation& move) const {
    const auto from = [&](int axis, std::int64_t p) {
      return move.source_position(axis, p, extent_[std::size_t(axis)]);
    };
    const std::int64_t d = from(0, number / extent_[1]), h = from(1, number % extent_[1]);
    const std::int64_t w = extent_[2], stored_w = stored_[2], line_count = w * channels_;
    const bool inside = d >= 0 && d < stored_[0] && h >= 0 && h < stored_[1], flip = move.flip[2];
    Line line;
    line.row = row * spec_.src.row_count();
    line.position = (d * stored_[1] + h) * stored_w + from(2, 0);
    line.direction = flip ? -1 : 1;
    line.each = strides_.each.empty() ? nullptr : strides_.each.data();
    line.channel_step = strides_.channel_step;
    line.pixel_step = line.direction * strides_.pixel_step;
    line.first = line.row + strides_.first + line.position * strides_.pixel_step;
    if (inside) {  // pixel x is read from position (flip ? w - 1 - x : x) + by
      const std::int64_t by = move.by[2];
      line.begin = std::clamp<std::int64_t>(flip ? w + by - stored_w : -by, 0, w);
      line.end = std::clamp<std::int64_t>(flip ? w + by : stored_w - by, 0, w);
    }
    const bool contiguous = line.begin == 0 && line.end == w && !flip && !line.each && line.pixel_step == channels_ &&
                            line.channel_step == 1;
    const std::size_t size = size_of(spec_.raw);
    const auto* raw = args.src[0].as<std::byte>();
    if (copies_ && contiguous) {
      const std::int64_t to_at = (row * extent_[0] * extent_[1] + number) * line_count;
      std::memcpy(args.dst.as<float>() + to_at, raw + std::size_t(line.first) * size, std::size_t(line_count) * size);
      return;
    }
    const ColorMatrix mix = move.has_color_jitter() ? color_jitter_.mix(move) : ColorMatrix{};
    const std::int64_t most = move.has_color_jitter() ? tile_count / 3 * 3 : tile_count;  // whole pixels
    for (std::int64_t at = 0; at < line_count; at += most) {
      const std::int64_t n = std::min(most, line_count - at);
      alignas(64) std::byte reordered[tile_count * 8];
      const void* raw_values = reordered;
      if (move.random_resized_crop)
        enlarge_tile(reinterpret_cast<float*>(reordered), args, row, number, move, at, n);
      else if (contiguous)
        raw_values = raw + std::size_t(line.first + at) * size;
      else
        reorder_bytes(reordered, raw, line, at, n, size);
      Tile tile;
      const std::int64_t to_at = (row * extent_[0] * extent_[1] + number) * line_count + at;
      float* to = float_target(args.dst, to_at, tile);
      const std::int64_t c = at % channels_;
      const float* shift = shift_.data() + c;
      normalise(to, raw_values, move.random_resized_crop ? DType::f32 : spec_.raw, factor_.data() + c,
                offset_.data() + c, n);
      if (spec_.transform == Transform::log1p) transform_log1p(to, gain_.data() + c, shift, n);
      if (move.has_color_jitter()) mix_colours(to, n, mix);
      if (move.gain != 1 || move.lift != 0)
        for (std::int64_t i = 0; i < n; ++i) to[i] = to[i] * move.gain + shift[i] * move.lift;
      // The elements of this tile that the cutout sets to 0.
      const std::int64_t cut_begin = std::max(at, move.cut_begin[2] * channels_),
                         cut_end = std::min(at + n, move.cut_end[2] * channels_);
      if (move.cut(number / extent_[1], number % extent_[1], move.cut_begin[2]) && cut_begin < cut_end)
        std::fill(to + (cut_begin - at), to + (cut_end - at), 0.0f);
      write_floats(args.dst, to_at, n, to);
    }
  }

  // Computes elements [at, at + n) of line y of an enlarged image, channels-last.
  template <class Raw>
  void enlarge(float* to, const Raw* image, const Augmentation& move, std::int64_t y, std::int64_t at,
               std::int64_t n) const {
    const std::int64_t w = extent_[2];
    const auto row = move.interpolation_point(0, move.unflipped(1, y, extent_[1]), extent_[1]);
    std::int64_t x = at / channels_, c = at % channels_;
    for (float* const end = to + n; to < end; ++x, c = 0) {
      const auto column = move.interpolation_point(1, move.unflipped(2, x, w), w);
      for (; c < channels_ && to < end; ++c) {
        const auto [first, step] =
            strides_.each.empty()
                ? InputStrides::Channel{strides_.first + c * strides_.channel_step, strides_.pixel_step}
                : strides_.each[std::size_t(c)];
        const Raw* upper = image + first + (row.first * w + column.first) * step;
        const Raw* lower = upper + (extent_[1] > 1 ? w * step : 0);
        const std::int64_t next = w > 1 ? step : 0;
        *to++ = Augmentation::interpolate(row, column, float(upper[0]), float(upper[next]), float(lower[0]),
                                          float(lower[next]));
      }
    }
  }

  void enlarge_tile(float* to, const OpArgs& args, std::int64_t row, std::int64_t number, const Augmentation& move,
                    std::int64_t at, std::int64_t n) const {
    dispatch_sample_dtype(spec_.raw, [&](auto zero) {
      const auto* image = args.src[0].as<decltype(zero)>() + row * spec_.src.row_count();
      enlarge(to, image, move, number, at, n);
    });
  }

  void reorder_bytes(void* to, const void* raw, const Line& line, std::int64_t at, std::int64_t n,
                     std::size_t size) const {
    const auto as = [&](auto zero) {
      using Raw = decltype(zero);
      reorder_line(static_cast<Raw*>(to), static_cast<const Raw*>(raw), line, channels_, at, n);
    };
    if (size == 1)
      as(std::uint8_t{});
    else if (size == 2)
      as(std::uint16_t{});
    else if (size == 4)
      as(std::uint32_t{});
    else
      as(std::uint64_t{});
  }

  InputSpec spec_;
  std::int64_t channels_;
  std::vector<InputChannel> values_;
  InputStrides strides_;
  Augmenter augmenter_;
  ColorJitter color_jitter_;
  std::array<std::int64_t, 3> stored_, extent_;  // spatial extents of src and of dst
  std::vector<float> factor_, offset_, gain_, shift_;
  bool copies_ = false;  // dst has the bits of the stored values, but for their positions
};

}  // namespace

std::unique_ptr<Op> make_input(const InputSpec& spec) { return std::make_unique<Input>(spec); }

}  // namespace millrace::cpu
