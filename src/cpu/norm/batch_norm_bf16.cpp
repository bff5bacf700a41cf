// Vectors of 16 lanes, four rows at a time, so that parameters, sums and bits are read once for four rows. Some
// instructions have a mask only because GCC 12 warns about the headers' functions without one (-Wmaybe-uninitialized).
#include "cpu/norm/batch_norm_bf16.hpp"

#include <limits>

#include "millrace/base/error.hpp"
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace millrace::cpu::batch_norm {

#ifdef __x86_64__
#define MR_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

bool has_bf16_kernels() {
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has;
}

namespace {

constexpr std::int64_t lanes = 16, group = 4;  // rows
MR_AVX512_BF16 inline __mmask16 lanes_below(std::int64_t n) {
  return n >= lanes ? __mmask16(0xffff) : __mmask16((1u << n) - 1);
}
MR_AVX512_BF16 inline __m512 widen(const bf16* from, __mmask16 mask) {
  const __m256i halves = _mm256_maskz_loadu_epi16(mask, from);
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(mask, _mm512_maskz_cvtepu16_epi32(mask, halves), 16));
}
MR_AVX512_BF16 inline void narrow(bf16* to, __mmask16 mask, __m512 value) {
  _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
}
MR_AVX512_BF16 inline void add_to(float* sum, __m512 value) {
  _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), value));
}

template <int rows>
MR_AVX512_BF16 inline void add_sums(HalfLines x, std::int64_t row, std::int64_t n, const float* shift, float* sum,
                                    float* square) {
  for (std::int64_t i = 0; i < n; i += lanes) {
    const __mmask16 mask = lanes_below(n - i);
    const __m512 of = _mm512_loadu_ps(shift + i);
    const bf16* from = x.data + row * x.stride + i;
    __m512 total = _mm512_sub_ps(widen(from, mask), of), squares = _mm512_mul_ps(total, total);
#pragma GCC unroll 4
    for (int r = 1; r < rows; ++r) {
      const __m512 d = _mm512_sub_ps(widen(from + r * x.stride, mask), of);
      total = _mm512_add_ps(total, d);
      squares = _mm512_fmadd_ps(d, d, squares);
    }
    add_to(sum + i, _mm512_maskz_mov_ps(mask, total));
    add_to(square + i, _mm512_maskz_mov_ps(mask, squares));
  }
}

// The gradient in row `row` of 16 lanes, 0 where the activation did not let the value pass.
template <bool masked>
MR_AVX512_BF16 inline __m512 passed(const bf16* dy, __mmask16 mask, __m512i word, int row) {
  if (!masked) return widen(dy, mask);
  return widen(dy, _mm512_mask_test_epi32_mask(mask, word, _mm512_set1_epi32(1 << row)));
}
template <bool masked>
MR_AVX512_BF16 inline __m512i word_of(const std::uint32_t* bits, __mmask16 mask, std::int64_t row) {
  if (!masked) return _mm512_setzero_si512();
  return _mm512_maskz_srl_epi32(mask, _mm512_maskz_loadu_epi32(mask, bits), _mm_cvtsi64_si128(row));
}

struct GradientSums {
  float *sum, *product;
  HalfTarget passed = {};  // where to store the gradient that passed; null: not requested
};

template <int rows, bool masked, bool stores = false>
MR_AVX512_BF16 inline void add_gradient_sums(HalfLines dy, HalfLines x, std::int64_t row, std::int64_t n,
                                             const std::uint32_t* bits, const float* mean, GradientSums to) {
  for (std::int64_t i = 0; i < n; i += lanes) {
    const __mmask16 mask = lanes_below(n - i);
    const __m512i word = word_of<masked>(bits + i, mask, row);
    const __m512 m = _mm512_loadu_ps(mean + i);
    __m512 total = _mm512_setzero_ps(), products = total;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const __m512 g = passed<masked>(dy.data + (row + r) * dy.stride + i, mask, word, r);
      const __m512 d = _mm512_maskz_sub_ps(mask, widen(x.data + (row + r) * x.stride + i, mask), m);
      if (stores) narrow(to.passed.data + (row + r) * to.passed.stride + i, mask, g);
      total = _mm512_add_ps(total, g);
      products = _mm512_fmadd_ps(g, d, products);
    }
    add_to(to.sum + i, total);
    add_to(to.product + i, products);
  }
}

template <bool masked, bool stores = false>
MR_AVX512_BF16 inline void gradient_sums_of(const Block& b, HalfLines dy, HalfLines x, const std::uint32_t* bits,
                                            const float* mean, GradientSums to) {
  std::int64_t row = 0;
  for (; row + group <= b.rows; row += group)
    add_gradient_sums<group, masked, stores>(dy, x, row, b.width, bits, mean, to);
  for (; row < b.rows; ++row) add_gradient_sums<1, masked, stores>(dy, x, row, b.width, bits, mean, to);
  if (b.tail > 0) add_gradient_sums<1, masked, stores>(dy, x, row, b.tail, bits, mean, to);
}

struct Activated {
  std::uint32_t* bits;
  Activation kind;
};

// Operands are passed by value: a vector that is stored may alias whatever is in memory.
template <int rows, bool has_residual, bool keep>
MR_AVX512_BF16 inline void normalise_rows(HalfNorm o, std::int64_t row, std::int64_t n, Activated act,
                                          NormParameters p) {
  const __m512 zero = _mm512_setzero_ps(),
               most = _mm512_set1_ps(act.kind == Activation::relu6 ? 6.0f : std::numeric_limits<float>::infinity());
  const __mmask16 clips = act.kind == Activation::none ? 0 : 0xffff, stops = act.kind == Activation::relu6 ? 0xffff : 0;
  bf16* const y = o.y.data + row * o.y.stride;
  const bf16 *const x = o.x.data + row * o.x.stride, *const residual = has_residual
                                                                           ? o.residual.data + row * o.residual.stride
                                                                           : nullptr;
  for (std::int64_t i = 0; i < n; i += lanes) {
    const __mmask16 mask = lanes_below(n - i);
    const __m512 mean = _mm512_loadu_ps(p.mean + i), factor = _mm512_loadu_ps(p.factor + i),
                 beta = _mm512_loadu_ps(p.beta + i);
    __m512i word = keep && row > 0 ? _mm512_maskz_loadu_epi32(mask, act.bits + i) : _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      __m512 v = _mm512_sub_ps(widen(x + r * o.x.stride + i, mask), mean);
      v = _mm512_fmadd_ps(v, factor, beta);
      if (has_residual) v = _mm512_add_ps(v, widen(residual + r * o.residual.stride + i, mask));
      if (keep) {  // a NaN passes, and so does an infinity through a ReLU
        const __mmask16 above = _mm512_cmp_ps_mask(v, zero, _CMP_NLE_UQ);
        const __mmask16 pass = above & ~_mm512_mask_cmp_ps_mask(stops, v, most, _CMP_GE_OQ);
        word = _mm512_mask_or_epi32(word, pass, word, _mm512_set1_epi32(int(1u << (row + r))));
      }
      // The second operand is the result if one is NaN.
      v = _mm512_mask_min_ps(v, clips, most, _mm512_mask_max_ps(v, clips, zero, v));
      narrow(y + r * o.y.stride + i, mask, v);
    }
    if (keep) _mm512_mask_storeu_epi32(act.bits + i, mask, word);
  }
}

template <bool has_residual, bool keep>
MR_AVX512_BF16 inline void normalise_of(const Block& b, const HalfNorm& o, const Activated& act,
                                        const NormParameters& p) {
  std::int64_t row = 0;
  for (; row + group <= b.rows; row += group) normalise_rows<group, has_residual, keep>(o, row, b.width, act, p);
  for (; row < b.rows; ++row) normalise_rows<1, has_residual, keep>(o, row, b.width, act, p);
  if (b.tail > 0) normalise_rows<1, has_residual, keep>(o, row, b.tail, act, p);
}

template <int rows, bool masked>
MR_AVX512_BF16 inline void gradient_rows(HalfGradient o, std::int64_t row, std::int64_t n, const std::uint32_t* bits,
                                         GradientParameters p) {
  const bf16 *const dy = o.dy.data + row * o.dy.stride, *const x = o.x.data + row * o.x.stride;
  bf16* const dx = o.dx.data ? o.dx.data + row * o.dx.stride : nullptr;
  bf16* const residual = o.residual.data ? o.residual.data + row * o.residual.stride : nullptr;
  for (std::int64_t i = 0; i < n; i += lanes) {
    const __mmask16 mask = lanes_below(n - i);
    const __m512i word = word_of<masked>(bits + i, mask, row);
    const __m512 mean = _mm512_loadu_ps(p.mean + i), factor = _mm512_loadu_ps(p.factor + i),
                 mean_g = _mm512_loadu_ps(p.mean_g + i), slope = _mm512_loadu_ps(p.slope + i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const __m512 g = passed<masked>(dy + r * o.dy.stride + i, mask, word, r);
      const __m512 d = _mm512_sub_ps(widen(x + r * o.x.stride + i, mask), mean);
      if (residual) narrow(residual + r * o.residual.stride + i, mask, g);
      const __m512 rest = _mm512_fnmadd_ps(d, slope, _mm512_sub_ps(g, mean_g));
      if (dx) narrow(dx + r * o.dx.stride + i, mask, _mm512_mul_ps(factor, rest));
    }
  }
}

template <bool masked>
MR_AVX512_BF16 inline void gradient_of(const Block& b, const HalfGradient& o, const std::uint32_t* bits,
                                       const GradientParameters& p) {
  std::int64_t row = 0;
  for (; row + group <= b.rows; row += group) gradient_rows<group, masked>(o, row, b.width, bits, p);
  for (; row < b.rows; ++row) gradient_rows<1, masked>(o, row, b.width, bits, p);
  if (b.tail > 0) gradient_rows<1, masked>(o, row, b.tail, bits, p);
}

std::int64_t whole_vectors(std::int64_t width) { return (width + lanes - 1) / lanes * lanes; }

}  // namespace

MR_AVX512_BF16 void sums(const Block& b, HalfLines x, const float* shift, float* sum, float* square) {
  std::fill_n(sum, whole_vectors(b.width), 0.0f);
  std::fill_n(square, whole_vectors(b.width), 0.0f);
  std::int64_t row = 0;
  for (; row + group <= b.rows; row += group) add_sums<group>(x, row, b.width, shift, sum, square);
  for (; row < b.rows; ++row) add_sums<1>(x, row, b.width, shift, sum, square);
  if (b.tail > 0) add_sums<1>(x, row, b.tail, shift, sum, square);
}

MR_AVX512_BF16 void gradient_sums(const Block& b, HalfLines dy, HalfLines x, const std::uint32_t* bits,
                                  const float* mean, float* sum, float* product) {
  std::fill_n(sum, whole_vectors(b.width), 0.0f);
  std::fill_n(product, whole_vectors(b.width), 0.0f);
  bits ? gradient_sums_of<true>(b, dy, x, bits, mean, {sum, product})
       : gradient_sums_of<false>(b, dy, x, bits, mean, {sum, product});
}

MR_AVX512_BF16 void passed_gradient(const Block& b, HalfTarget g, HalfLines x, const std::uint32_t* bits,
                                    const float* mean, float* sum, float* product) {
  std::fill_n(sum, whole_vectors(b.width), 0.0f);
  std::fill_n(product, whole_vectors(b.width), 0.0f);
  gradient_sums_of<true, true>(b, {g.data, g.stride}, x, bits, mean, {sum, product, g});
}

MR_AVX512_BF16 void normalise(const Block& b, const HalfNorm& o, std::uint32_t* bits, Activation kind,
                              const NormParameters& parameters) {
  const Activated act{bits, kind};
  if (o.residual.data)
    bits ? normalise_of<true, true>(b, o, act, parameters) : normalise_of<true, false>(b, o, act, parameters);
  else
    bits ? normalise_of<false, true>(b, o, act, parameters) : normalise_of<false, false>(b, o, act, parameters);
}

MR_AVX512_BF16 void gradient(const Block& b, const HalfGradient& o, const std::uint32_t* bits,
                             const GradientParameters& parameters) {
  bits ? gradient_of<true>(b, o, bits, parameters) : gradient_of<false>(b, o, bits, parameters);
}
#else
namespace {
[[noreturn]] void fail_without_avx512() {
  fail(Exit::internal, "internal error: a batch norm for AVX-512 on a processor without it. ask has_bf16_kernels()");
}
}  // namespace

bool has_bf16_kernels() { return false; }
void sums(const Block&, HalfLines, const float*, float*, float*) { fail_without_avx512(); }
void gradient_sums(const Block&, HalfLines, HalfLines, const std::uint32_t*, const float*, float*, float*) {
  fail_without_avx512();
}
void passed_gradient(const Block&, HalfTarget, HalfLines, const std::uint32_t*, const float*, float*, float*) {
  fail_without_avx512();
}
void normalise(const Block&, const HalfNorm&, std::uint32_t*, Activation, const NormParameters&) {
  fail_without_avx512();
}
void gradient(const Block&, const HalfGradient&, const std::uint32_t*, const GradientParameters&) {
  fail_without_avx512();
}
#endif

}  // namespace millrace::cpu::batch_norm
