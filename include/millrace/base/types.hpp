// Element types, and the two 16-bit floating-point formats. Conversions round to nearest, ties to even.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

enum class DType : std::uint8_t { u8, i8, u16, i16, i32, i64, f16, bf16, f32, f64 };

std::size_t size_of(DType);  // in bytes
const char* name_of(DType);
DType parse_dtype(std::string_view name);  // Error(config) on an unknown name

struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    bits = std::uint16_t((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);  // a NaN stays a NaN
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
};

// IEEE binary16 ("half"). Subnormals are kept; values that are too large become infinity.
struct f16 {
  std::uint16_t bits = 0;
  f16() = default;
  explicit f16(float value) : bits(encode(value)) {}
  explicit operator float() const { return decode(bits); }
  static std::uint16_t encode(float);
  static float decode(std::uint16_t);
};

}  // namespace millrace
