#include "millrace/base/types.hpp"

#include <array>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

struct TypeRow {
  const char* name;
  std::size_t bytes;
};
// In the order of DType.
constexpr std::array<TypeRow, 10> rows{{{"uint8", 1},
                                        {"int8", 1},
                                        {"uint16", 2},
                                        {"int16", 2},
                                        {"int32", 4},
                                        {"int64", 8},
                                        {"fp16", 2},
                                        {"bf16", 2},
                                        {"fp32", 4},
                                        {"fp64", 8}}};

}  // namespace

std::size_t size_of(DType t) { return rows[std::size_t(t)].bytes; }
const char* name_of(DType t) { return rows[std::size_t(t)].name; }

DType parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (name == rows[i].name) return DType(i);
  if (name == "float16") return DType::f16;
  if (name == "float32") return DType::f32;
  if (name == "float64") return DType::f64;
  fail(Exit::config,
       "'{}' is not an element type. choose one of uint8, int8, uint16, int16, int32, int64, fp16, bf16, fp32, fp64",
       name);
}

std::uint16_t f16::encode(float value) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = std::uint16_t((u >> 16) & 0x8000u);
  const std::uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (a >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 65536 or more: infinity
  if (a < 0x38800000u) {                        // below the smallest normal half, 2^-14
    // Adding 0.5 places the half's last bit (2^-24) at the float's last bit, so the addition itself rounds to nearest
    // even.
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return sign | std::uint16_t(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
  }
  return sign | std::uint16_t((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13);
}

float f16::decode(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  const float subnormal = float(rest) * 0x1p-24f;
  return sign ? -subnormal : subnormal;
}

}  // namespace millrace
