// Inner loops of a depthwise convolution for AVX2: 16 channels at once.
#pragma once
#include <cstdint>

namespace millrace::cpu::depthwise {

constexpr std::int64_t most_pixels = 6, most_taps = 7;

// to[p * to_step + c] = start[c] + sum over t of src[p * step + taps[t] + c] * weights[t * 16 + c] for `pixels` pixels
// (at most 6) and 16 channels. A null start is zero.
struct Strip {
  const float* src;
  std::int64_t step;
  const std::int64_t* taps;
  std::int64_t tap_count;
  const float *weights, *start;
  float* to;
  std::int64_t to_step;
};
void convolve(const Strip&, std::int64_t pixels);

// sums[t * 16 + c] += the sum over the pixels of src[p * step + taps[t] + c] * diff[p * diff_step + c], for `tap_count`
// taps (at most 7) and 16 channels. There are rows * pixels pixels; rows are row_step and pixels * diff_step apart.
struct Pixels {
  const float *src, *diff;
  std::int64_t step, row_step, diff_step, rows, pixels;
};
void add_products(const Pixels&, const std::int64_t* taps, std::int64_t tap_count, float* sums);

}  // namespace millrace::cpu::depthwise
