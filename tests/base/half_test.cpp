#include "millrace/base/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace millrace {
namespace {

// All upper halves with lower halves around the tie: denormal, infinite and no numbers are among them. The order mixes
// kinds within a vector, and the count leaves a rest.
std::vector<float> numbers() {
  std::vector<float> values;
  for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
    for (std::uint32_t high = 0; high < 0x10000; ++high)
      values.push_back(std::bit_cast<float>((high * 40503u & 0xffffu) << 16 | low));
  values.resize(values.size() - 5);
  return values;
}

template <class Half>
void expect_rounds_as_constructor(DType dtype) {
  const std::vector<float> values = numbers();
  std::vector<Half> halves(values.size());
  from_float(halves.data(), dtype, values.data(), std::int64_t(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != values[i]) {
      ASSERT_NE(float(halves[i]), float(halves[i])) << std::bit_cast<std::uint32_t>(values[i]);
      continue;
    }
    ASSERT_EQ(halves[i].bits, Half(values[i]).bits) << std::bit_cast<std::uint32_t>(values[i]);
  }
}

TEST(HalfArrays, AreRoundedAsByTheConstructors) {
  expect_rounds_as_constructor<bf16>(DType::bf16);
  expect_rounds_as_constructor<f16>(DType::f16);
}

TEST(HalfArrays, ReturnFromFloatUnchanged) {
  std::vector<bf16> halves(0x10000 + 3), again(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = std::uint16_t(i);
  std::vector<float> wide(halves.size());
  to_float(wide.data(), halves.data(), DType::bf16, std::int64_t(wide.size()));
  from_float(again.data(), DType::bf16, wide.data(), std::int64_t(wide.size()));
  for (std::size_t i = 0; i < halves.size(); ++i)
    if (wide[i] == wide[i]) {
      ASSERT_EQ(again[i].bits, halves[i].bits);
    }
}

}  // namespace
}  // namespace millrace
