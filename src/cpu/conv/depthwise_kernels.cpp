#include "cpu/conv/depthwise_kernels.hpp"

#include <algorithm>

#include "cpu/common/registers.hpp"
#include "cpu/matmul/tile_product.hpp"
#include "cpu/onednn/onednn.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cpu::depthwise {
namespace {

#define MR_INLINE __attribute__((always_inline)) inline

// A stride of 0 stands for any.
template <int stride>
MR_INLINE std::int64_t pixel_step(const Row& row) {
  return (stride ? stride : row.stride) * lanes;
}

// Computes `pixels` outputs from output `first` on. Their sums and the weights of a run stay in registers. Each source
// pixel is read once a run.
template <class Of, int taps, int stride, int pixels>
MR_INLINE void convolve_pixels(const Row& row, std::int64_t first, const float* weights, const float* start, float* to,
                               std::int64_t to_step) {
  const std::int64_t offset = row.offset + first * pixel_step<stride>(row);
  to += first * to_step;
  typename Of::Channels sum[pixels];
#pragma GCC unroll 14
  for (int p = 0; p < pixels; ++p) sum[p] = start ? channels_at<Of>(start) : typename Of::Channels{};
  for (std::int64_t r = 0; r < row.run_count; ++r) {
    const float *from = row.runs[r].src + offset, *kernel = weights + row.runs[r].number * lanes;
    if constexpr (stride == 0) {
      const typename Of::Channels k = channels_at<Of>(kernel);
#pragma GCC unroll 14
      for (int p = 0; p < pixels; ++p) sum[p] += k * channels_at<Of>(from + p * pixel_step<0>(row));
    } else {
      typename Of::Channels k[taps];
#pragma GCC unroll 8
      for (int t = 0; t < taps; ++t) k[t] = channels_at<Of>(kernel + t * lanes);
#pragma GCC unroll 32
      for (int j = 0; j < (pixels - 1) * stride + taps; ++j) {
        const typename Of::Channels v = channels_at<Of>(from + j * lanes);
#pragma GCC unroll 8
        for (int t = 0; t < taps; ++t)
          if (j >= t && (j - t) % stride == 0 && (j - t) / stride < pixels) sum[(j - t) / stride] += v * k[t];
      }
    }
  }
#pragma GCC unroll 14
  for (int p = 0; p < pixels; ++p) {
    if (row.channels >= Of::count)
      channels_at<Of>(to + p * to_step) = sum[p];
    else
      for (std::int64_t c = 0; c < row.channels; ++c) to[p * to_step + c] = sum[p][c];
  }
}

// The gradients of the pixels and the sums of a run stay in registers.
template <class Of, int taps, int stride, int pixels>
MR_INLINE void add_pixels(const Row& row, std::int64_t first, const float* diff, std::int64_t diff_step, float* sums) {
  const std::int64_t offset = row.offset + first * pixel_step<stride>(row);
  diff += first * diff_step;
  typename Of::Channels d[pixels];
#pragma GCC unroll 14
  for (int p = 0; p < pixels; ++p) {
    d[p] = typename Of::Channels{};
    if (row.channels >= Of::count)
      d[p] = channels_at<Of>(diff + p * diff_step);
    else
      for (std::int64_t c = 0; c < row.channels; ++c) d[p][c] = diff[p * diff_step + c];
  }
  for (std::int64_t r = 0; r < row.run_count; ++r) {
    const float* from = row.runs[r].src + offset;
    float* at = sums + row.runs[r].number * lanes;
    typename Of::Channels sum[taps];
#pragma GCC unroll 8
    for (int t = 0; t < taps; ++t) sum[t] = channels_at<Of>(at + t * lanes);
    if constexpr (stride == 0) {
#pragma GCC unroll 14
      for (int p = 0; p < pixels; ++p) sum[0] += d[p] * channels_at<Of>(from + p * pixel_step<0>(row));
    } else {
#pragma GCC unroll 32
      for (int j = 0; j < (pixels - 1) * stride + taps; ++j) {
        const typename Of::Channels v = channels_at<Of>(from + j * lanes);
#pragma GCC unroll 8
        for (int t = 0; t < taps; ++t)
          if (j >= t && (j - t) % stride == 0 && (j - t) / stride < pixels) sum[t] += v * d[(j - t) / stride];
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < taps; ++t) channels_at<Of>(at + t * lanes) = sum[t];
  }
}

// With fewer than 8 sums, additions wait for each other. Images often have multiples of 7 pixels.
template <class Of, int taps, int stride>
MR_INLINE void convolve_row(const Row& row, const float* weights, const float* start, float* to, std::int64_t to_step) {
  std::int64_t p = 0;
  if constexpr (Of::count == 16)
    for (; p + 14 <= row.pixels; p += 14) convolve_pixels<Of, taps, stride, 14>(row, p, weights, start, to, to_step);
  for (; p + 7 <= row.pixels; p += 7) convolve_pixels<Of, taps, stride, 7>(row, p, weights, start, to, to_step);
  for (; p + 4 <= row.pixels; p += 4) convolve_pixels<Of, taps, stride, 4>(row, p, weights, start, to, to_step);
  for (; p + 2 <= row.pixels; p += 2) convolve_pixels<Of, taps, stride, 2>(row, p, weights, start, to, to_step);
  if (p < row.pixels) convolve_pixels<Of, taps, stride, 1>(row, p, weights, start, to, to_step);
}

template <class Of, int taps, int stride>
MR_INLINE void add_row(const Row& row, const float* diff, std::int64_t diff_step, float* sums) {
  std::int64_t p = 0;
  if constexpr (Of::count == 16)
    for (; p + 14 <= row.pixels; p += 14) add_pixels<Of, taps, stride, 14>(row, p, diff, diff_step, sums);
  for (; p + 7 <= row.pixels; p += 7) add_pixels<Of, taps, stride, 7>(row, p, diff, diff_step, sums);
  for (; p + 4 <= row.pixels; p += 4) add_pixels<Of, taps, stride, 4>(row, p, diff, diff_step, sums);
  for (; p + 2 <= row.pixels; p += 2) add_pixels<Of, taps, stride, 2>(row, p, diff, diff_step, sums);
  if (p < row.pixels) add_pixels<Of, taps, stride, 1>(row, p, diff, diff_step, sums);
}

template <int taps, int stride>
struct ForWide {
  MR_WIDE static void convolve(const Row& row, const float* weights, const float* start, float* to,
                               std::int64_t to_step) {
    convolve_row<Wide, taps, stride>(row, weights, start, to, to_step);
  }
  MR_WIDE static void add_products(const Row& row, const float* diff, std::int64_t diff_step, float* sums) {
    add_row<Wide, taps, stride>(row, diff, diff_step, sums);
  }
};

// Row, for the second half of its channels.
MR_INLINE Row second_half(Row row) {
  row.offset += Narrow::count;
  row.channels -= Narrow::count;
  return row;
}

template <int taps, int stride>
struct ForNarrow {
  MR_NARROW static void convolve(const Row& row, const float* weights, const float* start, float* to,
                                 std::int64_t to_step) {
    constexpr int half = Narrow::count;
    convolve_row<Narrow, taps, stride>(row, weights, start, to, to_step);
    if (row.channels > half)
      convolve_row<Narrow, taps, stride>(second_half(row), weights + half, start ? start + half : nullptr, to + half,
                                         to_step);
  }
  MR_NARROW static void add_products(const Row& row, const float* diff, std::int64_t diff_step, float* sums) {
    constexpr int half = Narrow::count;
    add_row<Narrow, taps, stride>(row, diff, diff_step, sums);
    if (row.channels > half) add_row<Narrow, taps, stride>(second_half(row), diff + half, diff_step, sums + half);
  }
};

template <template <int, int> class Of, int taps, int stride>
constexpr Kernels kernels{&Of<taps, stride>::convolve, &Of<taps, stride>::add_products};

template <template <int, int> class Of>
Kernels choose(std::int64_t length, std::int64_t stride) {
  const bool strided = stride == 2;
  switch (length) {
    case 1:
      return kernels<Of, 1, 0>;
    case 2:
      return strided ? kernels<Of, 2, 2> : kernels<Of, 2, 1>;
    case 3:
      return strided ? kernels<Of, 3, 2> : kernels<Of, 3, 1>;
    case 5:
      return strided ? kernels<Of, 5, 2> : kernels<Of, 5, 1>;
    case 7:
      return strided ? kernels<Of, 7, 2> : kernels<Of, 7, 1>;
  }
  fail(Exit::internal, "internal error: no depthwise convolution by runs of {} taps. ask run_length()", length);
}

#undef MR_INLINE

}  // namespace

std::int64_t run_length(std::int64_t count, std::int64_t stride) {
  if (stride <= 2)
    for (const std::int64_t length : {7, 5, 3, 2})
      if (count % length == 0) return length;
  return 1;
}

Kernels kernels_for(std::int64_t length, std::int64_t stride) {
  if (onednn::tile_kernels() == &matmul::wide_tiles) return choose<ForWide>(length, stride);
  return choose<ForNarrow>(length, stride);
}

}  // namespace millrace::cpu::depthwise
