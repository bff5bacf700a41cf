// The fused input pass: raw samples in their stored dtype and layout -> crop, flip, normalise, cast, channels-last. One
// read, one write. src[0]: raw rows, `raw` type, (N, spatial..., C), or (N, C, spatial...) when channels_first; src[1]:
// sample ids (N) int64. dst (N, spatial..., C) in dtype: (value * scale - mean[c]) / std[c]; outside of the image the
// *normalised* value of 0 raw counts is used (as torchvision pads the raw image with zeros before normalising). Crop
// and flip use r = philox(rng_key(seed, augment), state->epoch, id): offset along spatial axis a is below(r.v[a],
// 2*pad+1) - pad; flip of the last spatial axis when r.v[3] has its top bit. Brightness and contrast: with factors u, v
// uniform in 1 +- brightness, 1 +- contrast from philox(rng_key(seed, jitter), ...), the scaled value x becomes mean[c]
// + (x * u - mean[c]) * v before it is normalised. Cutout: a cube of `cutout` pixels a side, clipped at the borders,
// around below(r.v[a], extent of axis a) with r = philox(rng_key(seed, cutout), ...) is 0 in dst. Zoom, of images
// alone and in place of the crop with padding: a random part of the image, of at least `zoom` of its area and up to 4/3
// as long in one direction as in the other, is enlarged to the whole by bilinear interpolation. All off in Mode::infer;
// augmentation.hpp has the draws.
#pragma once
#include <vector>

#include "millrace/ops/op.hpp"

namespace millrace {

struct InputSpec {
  Shape src;  // always written (N, spatial..., C), whatever the stored layout
  DType raw = DType::u8;
  bool channels_first = false;
  float scale = 1;               // 1/255 for uint8 images
  std::vector<float> mean, std;  // per channel, in scaled units; empty: none
  std::int64_t crop_pad = 0;
  bool flip = false;
  std::int64_t cutout = 0;             // side of the patch in pixels; 0: none
  float brightness = 0, contrast = 0;  // at most so much more or less, as a share
  float zoom = 0;                      // smallest share of the area; 0: none
  std::uint64_t seed = 0;
  DType dtype = DType::f32;
  Mode mode = Mode::train;

  std::int64_t zero_channels =
      0;  // fusion level 1: so many more channels of dst, all zero (conv.hpp has the other side)

  Shape dst() const {
    Shape shape = src;
    shape[-1] += zero_channels;
    return shape;
  }
  static constexpr bool keeps_src = false, keeps_dst = false;
};

}  // namespace millrace
