// exp, expm1 and the normal distribution in plain float arithmetic without branches or calls, so that loops over them
// vectorise. NaN in, NaN out.
#pragma once
#include <bit>
#include <cstdint>

namespace millrace::cpu {

struct ExpParts {
  float power, fraction;  // e^x = power * (1 + fraction), power = 2^n
};

// For |x| < 87: error about one unit in the last place. Taylor to r^7, |r| <= ln(2) / 2.
__attribute__((always_inline)) inline ExpParts exp_parts(float x) {
  const float shifter = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = x * 1.44269504f + shifter, n = shifted - shifter;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720, p = p * r + 1.0f / 120, p = p * r + 1.0f / 24, p = p * r + 1.0f / 6, p = p * r + 0.5f;
  const std::uint32_t bits = (std::bit_cast<std::uint32_t>(shifted) + 127u) << 23;
  return {std::bit_cast<float>(bits), p * r * r + r};
}

// e^x for x <= 88; 0 below -87.
__attribute__((always_inline)) inline float fast_exp(float x) {
  const ExpParts e = exp_parts(x < -87.0f ? -87.0f : x);
  const float value = e.power * e.fraction + e.power;
  return x < -87.0f ? 0.0f : value;
}

__attribute__((always_inline)) inline float fast_tanh(float x) {
  const float a = 2 * (x < 0 ? -x : x);
  const ExpParts e = exp_parts(a > 40.0f ? 40.0f : a);
  const float m = e.power * e.fraction + (e.power - 1);  // e^a - 1
  const float t = m / (m + 2);
  return x < 0 ? -t : t;
}

struct Normal {
  float cumulative, density;
};

// Abramowitz and Stegun 7.1.26: the cumulative to 1e-7.
__attribute__((always_inline)) inline Normal fast_normal(float x) {
  const float z = (x < 0 ? -x : x) * 0.70710678f, t = 1 / (1 + 0.3275911f * z), e = fast_exp(-0.5f * x * x);
  float p = 1.061405429f;
  p = p * t - 1.453152027f, p = p * t + 1.421413741f, p = p * t - 0.284496736f, p = p * t + 0.254829592f;
  const float tail = 0.5f * p * t * e;
  return {x < 0 ? tail : 1 - tail, 0.39894228f * e};
}

}  // namespace millrace::cpu
