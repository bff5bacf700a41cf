#include "millrace/base/rng.hpp"

#include <gtest/gtest.h>

#include <set>

namespace millrace {
namespace rng_test {

// The test vectors that the authors of Philox4x32-10 publish with Random123.
TEST(Rng, PhiloxGivesThePublishedNumbers) {
  const auto expect = [](Random4 r, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    EXPECT_EQ(r.v[0], a);
    EXPECT_EQ(r.v[1], b);
    EXPECT_EQ(r.v[2], c);
    EXPECT_EQ(r.v[3], d);
  };
  expect(philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect(philox(~0ull, ~0ull, ~0ull), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect(philox(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull), 0xd16cfe09, 0x94fdcceb,
         0x5001e420, 0x24126ea1);
}

TEST(Rng, PurposesAndSeedsHaveDistinctKeys) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (std::uint32_t purpose = 1; purpose <= 7; ++purpose) seen.insert(rng_key(seed, RngPurpose(purpose)));
  EXPECT_EQ(seen.size(), 700u);
}

TEST(Rng, NumbersStayInTheirRange) {
  EXPECT_EQ(uniform01(0), 0.0f);
  EXPECT_LT(uniform01(~0u), 1.0f);
  EXPECT_EQ(uniform_below(0, 7), 0u);
  EXPECT_EQ(uniform_below(~0u, 7), 6u);
  double sum = 0;
  for (std::uint64_t i = 0; i < 25000; ++i)
    for (const auto bits : philox(1, 2, i).v) sum += uniform01(bits);
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);  // 5 standard deviations
}

}  // namespace rng_test
}  // namespace millrace
