#include "millrace/base/types.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "millrace/base/error.hpp"

namespace millrace {
namespace types_test {

TEST(Types, NamesReadBack) {
  for (int t = 0; t <= int(DType::f64); ++t) EXPECT_EQ(parse_dtype(name_of(DType(t))), DType(t));
  EXPECT_EQ(parse_dtype("float32"), DType::f32);
  EXPECT_THROW(parse_dtype("float"), Error);
}

// The value by the definition of IEEE binary16, in exact arithmetic.
double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

TEST(Half, EveryValueDecodesByDefinitionAndEncodesBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16::decode(std::uint16_t(bits));
    if ((bits & 0x7c00) == 0x7c00) {
      ASSERT_EQ(std::isnan(value), (bits & 1023) != 0) << bits;
      ASSERT_EQ(std::isinf(value), (bits & 1023) == 0) << bits;
    } else {
      ASSERT_EQ(double(value), half_value(std::uint16_t(bits))) << bits;
    }
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(f16::decode(f16::encode(value))));
    else
      ASSERT_EQ(f16::encode(value), bits);
  }
}

TEST(Half, ValuesBetweenNeighboursRoundToNearestEven) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = half_value(bits), high = half_value(std::uint16_t(bits + 1));
    const float middle = float((low + high) / 2);  // exact: one bit more than a half has
    ASSERT_EQ(f16::encode(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(f16::encode(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(f16::encode(std::nextafter(middle, 1e9f)), bits + 1) << bits;
    ASSERT_EQ(f16::encode(-middle), 0x8000 | (bits % 2 == 0 ? bits : bits + 1)) << bits;
  }
}

TEST(Half, OverflowBeginsAt65520) {
  EXPECT_EQ(f16::encode(65519.996f), 0x7bff);
  EXPECT_EQ(f16::encode(65520.0f), 0x7c00);
  EXPECT_EQ(f16::encode(-1e30f), 0xfc00);
  EXPECT_EQ(f16::encode(std::ldexp(1.0f, -25)), 0);  // halfway between zero and the smallest subnormal
}

TEST(Bfloat, EveryValueConvertsBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    bf16 value;
    value.bits = std::uint16_t(bits);
    if (std::isnan(float(value)))
      ASSERT_TRUE(std::isnan(float(bf16(float(value))))) << bits;
    else
      ASSERT_EQ(bf16(float(value)).bits, bits);
  }
}

TEST(Bfloat, ValuesBetweenNeighboursRoundToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const std::uint32_t middle = bits << 16 | 0x8000u;
    const auto rounded = [](std::uint32_t u) { return bf16(std::bit_cast<float>(u)).bits; };
    ASSERT_EQ(rounded(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(rounded(middle - 1), bits) << bits;
    ASSERT_EQ(rounded(middle + 1), bits + 1) << bits;
  }
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

}  // namespace types_test
}  // namespace millrace
