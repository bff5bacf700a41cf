// Specifications, stored values and a comparison with the reference, for tests of the input operation.
#pragma once
#include <cmath>
#include <string>

#include "reference/input.hpp"
#include "support/op_harness.hpp"

namespace millrace::test {

inline InputSpec input(Shape src, DType raw, bool augment = true, bool channels_first = false) {
  InputSpec s;
  s.src = src;
  s.raw = raw;
  s.channels_first = channels_first;
  s.seed = 7;
  if (augment) {
    s.crop_pad = 2;
    s.flip = true;
  }
  if (raw == DType::u8) s.scale = 1.0f / 255;
  if (raw == DType::i32) s.scale = 1e-6f;
  for (std::int64_t c = 0; c < src[-1]; ++c) {
    s.mean.push_back(0.4f + 0.05f * float(c % 3));
    s.std.push_back(0.2f + 0.03f * float(c % 5));
  }
  return s;
}

inline Values raw_values(const InputSpec& s, bool fractions) {
  Values v = random_values(s.src.count(), 1);
  for (double& e : v) {
    if (s.raw == DType::u8)
      e = std::floor(128 + 128 * e);
    else if (s.raw == DType::i8)
      e = std::floor(128 * e);
    else if (s.raw == DType::u16)
      e = std::floor(32768 + 32768 * e);
    else if (s.raw == DType::i16)
      e = std::floor(32768 * e);
    else if (s.raw == DType::i32)
      e = std::floor(1e6 * e);
    else if (!fractions)
      e = std::floor(e);
  }
  return v;
}

// float32: the factor, the offset and the result are rounded. 16 bits: the result is rounded.
inline constexpr Tolerance input_tolerance{5e-7, 4e-3, 5e-4};
// Random resized crop: the error of a position in float32 is up to 2^-24 of the extent. The error of a value is that
// times the difference between neighbouring pixels.
inline constexpr Tolerance resized_tolerance{5e-5, 4e-3, 6e-4};

inline void expect_reference(const InputSpec& s, const std::string& what, Tolerance tolerance = input_tolerance) {
  OpHarness h(s);
  h.state.epoch = 3;
  Values ids;
  for (std::int64_t i = 0; i < s.src[0]; ++i) ids.push_back(double(i * 3000000000 + 11));
  const auto raw = h.set_src(0, s.src, s.raw, raw_values(s, true));
  h.set_src(1, {s.src[0]}, DType::i64, ids);
  h.want_dst(s.dst(), s.dtype);
  h.forward();
  expect_close(get(h.args.dst), reference::input(s, raw, ids, h.state), tolerance.of(s.dtype), what);
}

}  // namespace millrace::test
