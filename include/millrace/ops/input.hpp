// The fused input pass. It crops, flips and normalises raw samples, converts them to `dtype`, and stores them
// channels-last. It reads each sample once and writes it once.
//
//   src[0]   raw rows in their stored type `raw`: (N, spatial..., C), or (N, C, spatial...) if channels_first. With
//            `parts`, each row consists of that many such blocks, one behind the other; C is the sum of their channels.
//   src[1]   sample ids, (N) int64
//   dst      (N, extents..., K) in `dtype`: (f(value * scale + offset) - mean[k]) / std[k] of the stored channel
//            channels[k], where f is `transform`. Outside of the sample, the raw value is 0 and is normalised like all
//            others, as in torchvision, which pads the raw image with zeros before it normalises.
//
// Augmentations. Their random numbers are r = philox(rng_key(seed, purpose), state->epoch, id); augmentation.hpp has
// the code. In Mode::infer only the subvolume in the middle remains.
//
//   subvolume
//     A box with the extents `subvolume` in the middle of the sample. With random_subvolume, it begins at
//     uniform_below(r.v[a], room + 1) along spatial axis a, where `room` is the difference of the extents.
//
//   crop, flip
//     Purpose `augment`. The crop adds uniform_below(r.v[a], 2 * crop_pad + 1) - crop_pad to the offset along axis a.
//     The last spatial axis is flipped if the top bit of r.v[3] is set, the axis before it if the next bit is set, and
//     so on.
//
//   brightness, contrast
//     Purpose `jitter`. The factors u and v are uniform in 1 +- brightness and 1 +- contrast. The transformed value x
//     becomes mean[c] + (x * u - mean[c]) * v before it is normalised.
//
//   saturation, hue
//     Applied before brightness and contrast, to samples of three channels (red, green, blue), with r.v[2] and r.v[3]
//     of the same draw. Saturation scales the colour of a pixel, which is its difference from its luminance, by a
//     factor uniform in 1 +- saturation. Hue rotates the colour by an angle uniform in +- hue full turns. The luminance
//     is kept. These are saturate and hueRotate of feColorMatrix (W3C Filter Effects Module 1).
//
//   cutout
//     Values of dst in a cube with sides of `cutout` pixels are 0. Along axis a, its centre is
//     uniform_below(r.v[a], extent). The cube is clipped at the borders.
//
//   random resized crop
//     For images only, instead of the crop with padding. A random part of the image is enlarged to the whole image by
//     bilinear interpolation. It has at least the share random_resized_crop of the area, and one side is at most 4/3
//     as long as the other, in units of the sides of the image.
#pragma once
#include <vector>

#include "millrace/base/transform.hpp"
#include "millrace/ops/op.hpp"

namespace millrace {

struct InputSpec {
  Shape src;  // (N, spatial..., C) for every stored layout
  DType raw = DType::u8;
  bool channels_first = false;
  std::vector<std::int64_t> parts = {};     // number of channels of each part; empty: one part
  std::vector<std::int64_t> channels = {};  // stored channels that are used, in the order of dst; empty: all
  float scale = 1, offset = 0;              // for uint8 images, scale is 1/255
  std::vector<float> channel_scale = {}, channel_offset = {};  // per channel of dst; empty: scale and offset for all
  Transform transform = Transform::none;
  std::vector<float> mean, std;              // per channel of dst, in transformed units; empty: 0 and 1
  std::vector<std::int64_t> subvolume = {};  // spatial extents of dst; empty: those of src
  bool random_subvolume = false;             // in training: at a random position
  std::int64_t crop_pad = 0;
  bool flip = false;
  std::vector<std::int64_t> flip_axes = {};  // spatial axes, counted from 0, flipped independently; empty: the last
  std::int64_t cutout = 0;                   // side of the cube in pixels; 0: off
  float brightness = 0, contrast = 0;        // largest relative change; 0: off
  float saturation = 0, hue = 0;             // saturation: largest relative change; hue: largest turn, at most 0.5
  float random_resized_crop = 0;             // smallest share of the area; 0: off
  std::uint64_t seed = 0;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  // Fusion level 1: number of channels of zeros that are appended to dst; see ConvSpec::padded_channels.
  std::int64_t padded_channels = 0;

  std::int64_t used_channels() const { return channels.empty() ? src[-1] : std::int64_t(channels.size()); }
  Shape dst() const {
    Shape shape = src;
    for (std::size_t a = 0; a < subvolume.size(); ++a) shape[int(a) + 1] = subvolume[a];
    shape[-1] = used_channels() + padded_channels;
    return shape;
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// For backends: how the values of one channel are normalised. Without a transform, the result is raw * factor + offset.
// With a transform f, it is f(raw * factor + offset) * gain + shift. In both cases shift is -mean / std, and unit is
// 1 / std.
struct InputChannel {
  float factor, offset, gain, shift, unit;
};
// One for each channel of dst, without padded_channels. Throws Error(config) if the Spec contradicts itself, or if no
// backend supports it.
std::vector<InputChannel> input_channels(const InputSpec&);

// For backends: where the values of a stored row are. Channel k of dst at position p of src is element
// first + p * pixel_step + k * channel_step of the row. If the channels are not evenly spaced, it is element
// each[k].first + p * each[k].step instead.
struct InputStrides {
  struct Channel {
    std::int64_t first, step;
  };
  std::int64_t first = 0, pixel_step = 1, channel_step = 1;
  std::vector<Channel> each;  // empty: the channels are evenly spaced
  bool contiguous = false;    // the values of a row of src are in the order of dst, without gaps
};
InputStrides input_strides(const InputSpec&);

}  // namespace millrace
