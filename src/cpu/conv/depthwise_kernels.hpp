// Inner loops of a depthwise convolution: 16 channels of a row of pixels, for AVX-512 and for AVX2.
#pragma once
#include <cstdint>

namespace millrace::cpu::depthwise {

constexpr std::int64_t lanes = 16;  // channels

// Taps that lie side by side in the source.
struct Run {
  const float* src;     // where the first pixel of the row reads the first tap
  std::int64_t number;  // of the first tap, among those of the kernel
};

// A row of output pixels. They read the same runs, each `stride` source pixels further than the one before. Pixels of
// the source are `lanes` elements apart.
struct Row {
  const Run* runs;
  std::int64_t run_count;
  std::int64_t offset;  // added to src of each run
  std::int64_t stride, pixels;
  std::int64_t channels;  // at most 16: the others are neither read nor written
};

struct Kernels {
  // to[p * to_step + c] = start[c] + the sum over the taps t of their source * weights[t * 16 + c]. start: 16 numbers,
  // or null for zeros.
  void (*convolve)(const Row&, const float* weights, const float* start, float* to, std::int64_t to_step);
  // sums[t * 16 + c] += the sum over the pixels of the source of tap t * diff[p * diff_step + c].
  void (*add_products)(const Row&, const float* diff, std::int64_t diff_step, float* sums);
};

// The longest runs for `count` taps that lie side by side: a divisor of count.
std::int64_t run_length(std::int64_t count, std::int64_t stride);

// For runs of this length; throws Error(internal) if there are none. Needs AVX2 and FMA.
Kernels kernels_for(std::int64_t run_length, std::int64_t stride);

}  // namespace millrace::cpu::depthwise
