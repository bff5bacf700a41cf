#include "cuda/dnn/time_candidates.hpp"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

TEST(Race, MeasuresInFullOnlyThoseThatAreNotFarBehind) {
  const std::vector<double> real{10, 1, 2.9, 3.1, 1000, 0.5, 1.4, 1.6};
  std::vector<int> runs(real.size(), 0);
  const auto seconds = cuda::time_candidates(real.size(), [&](std::size_t c, int count) {
    runs[c] += count;
    return real[c] + (count == 1 ? 0 : -0.1);
  });
  const std::vector<double> expected{9.9, 0.9, 2.8, never, never, 0.4, 1.3, never};
  ASSERT_EQ(seconds.size(), expected.size());
  for (std::size_t c = 0; c < expected.size(); ++c) {
    EXPECT_EQ(runs[c] == 1, expected[c] == never) << c;
    if (expected[c] < never)
      EXPECT_NEAR(seconds[c], expected[c], 1e-12) << c;
    else
      EXPECT_EQ(seconds[c], never) << c;
  }
}

TEST(Race, PassesOverThoseThatFail) {
  int asked = 0;
  const auto seconds = cuda::time_candidates(4, [&](std::size_t c, int runs) {
    asked += runs;
    return c % 2 == 0 ? never : 2.0;
  });
  EXPECT_EQ(seconds, (std::vector<double>{never, 2, never, 2}));
  EXPECT_EQ(asked, 1 + 11 + 1 + 11);
}

}  // namespace
}  // namespace millrace
