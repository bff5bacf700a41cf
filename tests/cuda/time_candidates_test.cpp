#include "cuda/plans/time_candidates.hpp"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

TEST(TimeCandidates, MeasuresOnlyCandidatesThatAreNotMuchSlowerThanTheBest) {
  const std::vector<double> real{10, 1, 2.9, 3.1, 1000, 0.5, 1.4, 1.6};
  std::vector<int> runs(real.size(), 0);
  const auto seconds = cuda::time_candidates(real.size(), [&](std::size_t c, int count) {
    runs[c] += count;
    return real[c] + (count == 1 ? 0 : -0.1);
  });
  const std::vector<double> expected{9.9, 0.9, 2.8, infinite, infinite, 0.4, 1.3, infinite};
  ASSERT_EQ(seconds.size(), expected.size());
  for (std::size_t c = 0; c < expected.size(); ++c) {
    EXPECT_EQ(runs[c] == 1, expected[c] == infinite) << c;
    if (expected[c] < infinite)
      EXPECT_NEAR(seconds[c], expected[c], 1e-12) << c;
    else
      EXPECT_EQ(seconds[c], infinite) << c;
  }
}

TEST(TimeCandidates, CandidatesThatFailScoreInfinity) {
  int total_runs = 0;
  const auto seconds = cuda::time_candidates(4, [&](std::size_t c, int runs) {
    total_runs += runs;
    return c % 2 == 0 ? infinite : 2.0;
  });
  EXPECT_EQ(seconds, (std::vector<double>{infinite, 2, infinite, 2}));
  EXPECT_EQ(total_runs, 1 + 11 + 1 + 11);
}

}  // namespace
}  // namespace millrace
