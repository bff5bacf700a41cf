// The fused input pass: raw samples in their stored dtype and layout -> crop, flip, normalise, cast, channels-last. One
// read, one write. src[0]: raw rows, `raw` type: (N, spatial..., C), or (N, C, spatial...) when channels_first; with
// `parts`, each row is so many of these one behind the other, C being the sum of their channels. src[1]: sample ids (N)
// int64. dst (N, extents..., K) in dtype: (f(value * scale + offset) - mean[k]) / std[k] of the stored channel
// channels[k], f being the transform; outside of the sample the *normalised* value of 0 raw counts is used (as
// torchvision pads the raw image with zeros before normalising).
//
// Which part of the sample: `subvolume` extents, in the middle, or (subvolume_moves) from below(r.v[a], room + 1) along
// spatial axis a with r = philox(rng_key(seed, subvolume), state->epoch, id). Crop and flip use r =
// philox(rng_key(seed, augment), ...): the offset along axis a is further below(r.v[a], 2*pad+1) - pad; the last
// spatial axis is flipped when r.v[3] has its top bit, the one before it by the next bit, and so on. Brightness and
// contrast: with factors u, v uniform in 1 +- brightness, 1 +- contrast from philox(rng_key(seed, jitter), ...), the
// transformed value x becomes mean[c] + (x * u - mean[c]) * v before it is normalised. Saturation and hue, of three
// channels (red, green, blue), come before these: with s uniform in 1 +- saturation and h in +- hue, r.v[2] and r.v[3]
// of the same draw, the colour of a pixel, which is x less its luminance, becomes s times as strong and is turned by h
// of a full turn; the luminance stays (saturate and hueRotate of feColorMatrix, W3C Filter Effects Module 1). Cutout: a
// cube of `cutout` pixels a side, clipped at the borders, around below(r.v[a], extent of axis a) with r =
// philox(rng_key(seed, cutout), ...) is 0 in dst. Zoom, of images alone and in place of the crop with padding: a random
// part of the image, of at least `zoom` of its area and up to 4/3 as long in one direction as in the other, is enlarged
// to the whole by bilinear interpolation. In Mode::infer all are off but the subvolume in the middle; augmentation.hpp
// has the draws.
#pragma once
#include <vector>

#include "millrace/base/transform.hpp"
#include "millrace/ops/op.hpp"

namespace millrace {

struct InputSpec {
  Shape src;  // always written (N, spatial..., C), whatever the stored layout
  DType raw = DType::u8;
  bool channels_first = false;
  std::vector<std::int64_t> parts = {};     // channels of each; empty: one part
  std::vector<std::int64_t> channels = {};  // stored channels that reach dst, in this order; empty: all
  float scale = 1, offset = 0;              // 1/255 for uint8 images
  std::vector<float> channel_scale = {}, channel_offset = {};  // per channel of dst; empty: the same for all
  Transform transform = Transform::none;
  std::vector<float> mean, std;              // per channel of dst, in transformed units; empty: none
  std::vector<std::int64_t> subvolume = {};  // spatial extents of dst; empty: those of src
  bool random_subvolume = false;             // in training: at a random place
  std::int64_t crop_pad = 0;
  bool flip = false;
  std::vector<std::int64_t> flip_axes = {};  // spatial axes from 0, each flipped by itself; empty: the last
  std::int64_t cutout = 0;                   // side of the patch in pixels; 0: none
  float brightness = 0, contrast = 0;        // at most so much more or less, as a share
  float saturation = 0, hue = 0;             // of three channels; hue in turns, at most half a one
  float random_resized_crop = 0;             // smallest share of the area; 0: none
  std::uint64_t seed = 0;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  std::int64_t padded_channels =
      0;  // fusion level 1: so many more channels of dst, all zero (conv.hpp has the other side)

  std::int64_t used_channels() const { return channels.empty() ? src[-1] : std::int64_t(channels.size()); }
  Shape dst() const {
    Shape shape = src;
    for (std::size_t a = 0; a < subvolume.size(); ++a) shape[int(a) + 1] = subvolume[a];
    shape[-1] = used_channels() + padded_channels;
    return shape;
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

// For backends. A value becomes raw * factor + offset; with a transform f that is inside: f(raw * factor + offset) *
// gain
// + shift. shift is -mean / std in either case, and unit 1 / std.
struct InputChannel {
  float factor, offset, gain, shift, unit;
};
// One a channel of dst, without those of zeros. Error(config) where the Spec contradicts itself or is more than any
// backend does.
std::vector<InputChannel> input_channels(const InputSpec&);

// For backends. Where the values of a stored row are: channel k of dst at position p of src is element
// first + p * pixel_step + k * channel_step; or, where they do not lie so evenly, each[k].first + p * each[k].step.
struct InputStrides {
  struct Channel {
    std::int64_t first, step;
  };
  std::int64_t first = 0, pixel_step = 1, channel_step = 1;
  std::vector<Channel> each;  // empty: evenly
  // Rows of src are rows of dst, value by value.
  bool contiguous = false;
};
InputStrides input_strides(const InputSpec&);

}  // namespace millrace
