// exp, tanh, the normal distribution and its tanh approximation in float, without function calls, so that the compiler
// vectorises loops over them. Conditionals select between constants or are bit operations, because the compiler would
// turn a choice between two computations into a branch. The result for a NaN is a NaN.
#pragma once
#include <bit>
#include <cstdint>

namespace millrace::cpu {

constexpr std::uint32_t sign_bit = 0x80000000u;
__attribute__((always_inline)) inline float with_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
__attribute__((always_inline)) inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

// 2^n for n in [-126, 127].
__attribute__((always_inline)) inline float power_of_two(std::int32_t n) {
  return with_bits(std::uint32_t(n + 127) << 23);
}

// Bounds of the argument of exp. Make one before a loop. The values are hidden from the compiler, which would otherwise
// propagate the constants and turn the clamp into a branch.
struct ExpBounds {
  float low = -104, high = 40;
  __attribute__((always_inline)) ExpBounds() { asm("" : "+m"(low), "+m"(high)); }
};

struct ExpParts {
  std::int32_t n;
  float fraction;  // e^x = 2^n * (1 + fraction)
};

// The error is about one unit in the last place. Taylor series up to r^7, with |r| <= ln(2) / 2.
__attribute__((always_inline)) inline ExpParts exp_parts(float x) {
  const float shifter = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = x * 1.44269504f + shifter, n = shifted - shifter;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  return {std::int32_t(bits_of(shifted) - bits_of(shifter)), p * r * r + r};
}

// e^x for x <= 88. Two factors for 2^n let the result become denormal, and 0 below -104.
__attribute__((always_inline)) inline float fast_exp(float x, const ExpBounds& bounds) {
  const ExpParts e = exp_parts(x < bounds.low ? bounds.low : x);
  const float half = power_of_two(e.n >> 1), rest = power_of_two(e.n - (e.n >> 1));
  return (half * e.fraction + half) * rest;
}

__attribute__((always_inline)) inline float fast_tanh(float x, const ExpBounds& bounds) {
  const float a = 2 * with_bits(bits_of(x) & ~sign_bit);
  const ExpParts e = exp_parts(a > bounds.high ? bounds.high : a);
  const float power = power_of_two(e.n), m = power * e.fraction + (power - 1);  // e^a - 1
  return with_bits(bits_of(m / (m + 2)) | (bits_of(x) & sign_bit));
}

// 1 / (1 + e^-x), from the exponential of a number that is at most 0.
__attribute__((always_inline)) inline float fast_sigmoid(float x, const ExpBounds& bounds) {
  const float t = fast_exp(with_bits(bits_of(x) | sign_bit), bounds);
  const std::uint32_t positive = ~std::uint32_t(std::int32_t(bits_of(x)) >> 31);
  return with_bits((0x3f800000u & positive) | (bits_of(t) & ~positive)) / (1 + t);
}

// e^x - 1 for x <= 0.
__attribute__((always_inline)) inline float fast_expm1(float x, const ExpBounds& bounds) {
  const ExpParts e = exp_parts(x < bounds.low ? bounds.low : x);
  const float half = power_of_two(e.n >> 1), rest = power_of_two(e.n - (e.n >> 1)), power = half * rest;
  return power * e.fraction + (power - 1);
}

struct Normal {
  float cumulative, density;
};

// Abramowitz and Stegun 7.1.26; the error of the cumulative is below 1e-7.
__attribute__((always_inline)) inline Normal fast_normal(float x, const ExpBounds& bounds) {
  const float z = with_bits(bits_of(x) & ~sign_bit) * 0.70710678f, t = 1 / (1 + 0.3275911f * z);
  const float e = fast_exp(-0.5f * x * x, bounds);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float tail = 0.5f * p * t * e;
  const std::uint32_t positive = ~std::uint32_t(std::int32_t(bits_of(x)) >> 31);
  const float one = with_bits(0x3f800000u & positive);  // the cumulative is tail for x < 0, otherwise 1 - tail
  return {one + with_bits(bits_of(tail) ^ (sign_bit & positive)), 0.39894228f * e};
}

// The approximation of the normal distribution that gelu_tanh uses: 1 / (1 + e^-2u) with
// u = sqrt(2 / pi) (x + 0.044715 x^3). |x| is clamped to 40, where the result is 0 or 1.
__attribute__((always_inline)) inline Normal fast_tanh_normal(float x, const ExpBounds& bounds) {
  const float size = with_bits(bits_of(x) & ~sign_bit), a = size > bounds.high ? bounds.high : size;
  const float square = 0.044715f * a * a, t = fast_exp(-1.59576912f * a * (1 + square), bounds), part = 1 / (1 + t);
  const std::uint32_t positive = ~std::uint32_t(std::int32_t(bits_of(x)) >> 31);
  const float one_or_t = with_bits((0x3f800000u & positive) | (bits_of(t) & ~positive));
  return {one_or_t * part, 1.59576912f * (1 + 3 * square) * t * part * part};
}

}  // namespace millrace::cpu
