#include "cpu/conv/depthwise_kernels.hpp"

#include "millrace/base/error.hpp"
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace millrace::cpu::depthwise {

#ifdef __x86_64__
#define MR_AVX2 __attribute__((target("avx2,fma")))

namespace {

// Two sums for each pixel and two vectors of weights: 14 of 16 registers. src is read from memory by the product.
template <int pixels>
MR_AVX2 void convolve_pixels(const Strip& s) {
  __m256 sum[pixels][2];
#pragma GCC unroll 6
  for (int p = 0; p < pixels; ++p) {
    sum[p][0] = s.start ? _mm256_loadu_ps(s.start) : _mm256_setzero_ps();
    sum[p][1] = s.start ? _mm256_loadu_ps(s.start + 8) : _mm256_setzero_ps();
  }
  const float* weights = s.weights;
  const std::int64_t step = s.step;
  for (std::int64_t t = 0; t < s.tap_count; ++t, weights += 16) {
    const __m256 left = _mm256_loadu_ps(weights), right = _mm256_loadu_ps(weights + 8);
    const float* from = s.src + s.taps[t];
#pragma GCC unroll 6
    for (int p = 0; p < pixels; ++p) {
      sum[p][0] = _mm256_fmadd_ps(left, _mm256_loadu_ps(from + p * step), sum[p][0]);
      sum[p][1] = _mm256_fmadd_ps(right, _mm256_loadu_ps(from + p * step + 8), sum[p][1]);
    }
  }
#pragma GCC unroll 6
  for (int p = 0; p < pixels; ++p) {
    _mm256_storeu_ps(s.to + p * s.to_step, sum[p][0]);
    _mm256_storeu_ps(s.to + p * s.to_step + 8, sum[p][1]);
  }
}

// Two sums for each tap and two vectors of diff: 16 registers.
template <int taps>
MR_AVX2 void add_taps(const Pixels& of, const std::int64_t* offsets, float* sums) {
  __m256 sum[taps][2];
#pragma GCC unroll 7
  for (int t = 0; t < taps; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_ps();
  const float* diff = of.diff;
  for (std::int64_t r = 0; r < of.rows; ++r) {
    const float* from = of.src + r * of.row_step;
    for (std::int64_t p = 0; p < of.pixels; ++p, from += of.step, diff += of.diff_step) {
      const __m256 left = _mm256_loadu_ps(diff), right = _mm256_loadu_ps(diff + 8);
#pragma GCC unroll 7
      for (int t = 0; t < taps; ++t) {
        sum[t][0] = _mm256_fmadd_ps(left, _mm256_loadu_ps(from + offsets[t]), sum[t][0]);
        sum[t][1] = _mm256_fmadd_ps(right, _mm256_loadu_ps(from + offsets[t] + 8), sum[t][1]);
      }
    }
  }
#pragma GCC unroll 7
  for (int t = 0; t < taps; ++t) {
    _mm256_storeu_ps(sums + 16 * t, _mm256_add_ps(_mm256_loadu_ps(sums + 16 * t), sum[t][0]));
    _mm256_storeu_ps(sums + 16 * t + 8, _mm256_add_ps(_mm256_loadu_ps(sums + 16 * t + 8), sum[t][1]));
  }
}

}  // namespace

void convolve(const Strip& strip, std::int64_t pixels) {
  using Convolve = decltype(&convolve_pixels<1>);
  constexpr Convolve functions[] = {&convolve_pixels<1>, &convolve_pixels<2>, &convolve_pixels<3>,
                                    &convolve_pixels<4>, &convolve_pixels<5>, &convolve_pixels<6>};
  functions[pixels - 1](strip);
}

void add_products(const Pixels& of, const std::int64_t* taps, std::int64_t tap_count, float* sums) {
  using Add = decltype(&add_taps<1>);
  constexpr Add functions[] = {&add_taps<1>, &add_taps<2>, &add_taps<3>, &add_taps<4>,
                               &add_taps<5>, &add_taps<6>, &add_taps<7>};
  functions[tap_count - 1](of, taps, sums);
}
#else
namespace {
[[noreturn]] void fail_without_avx2() {
  fail(Exit::internal,
       "internal error: a convolution for AVX2 on a processor without it. ask DepthwiseGeometry::supports() first");
}
}  // namespace

void convolve(const Strip&, std::int64_t) { fail_without_avx2(); }
void add_products(const Pixels&, const std::int64_t*, std::int64_t, float*) { fail_without_avx2(); }
#endif

}  // namespace millrace::cpu::depthwise
