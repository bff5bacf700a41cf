#include "millrace/advisor/trials/rate_range.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "train/runs.hpp"

namespace millrace {
namespace rate_range_test {

double uniform(std::mt19937& random) { return double(random()) / 4294967296.0 - 0.5; }

// A loss that starts at 2.3, falls by 1.5 around a rate of 0.01 and rises beyond 3; rates from 1e-5 to 10.
RateSweep known(double noise, int steps = 200) {
  std::mt19937 random(3);
  RateSweep out;
  for (int i = 0; i < steps; ++i) {
    const double d = -5 + 6.0 * i / (steps - 1);
    double loss = 2.3 - 1.5 / (1 + std::exp(-4 * (d + 2)));
    if (d > 0.477) loss += 20 * (d - 0.477);
    out.rate.push_back(std::pow(10, d));
    out.loss.push_back(loss + noise * uniform(random));
  }
  return out;
}

TEST(RateRange, FindsWhereAKnownCurveFallsAndRises) {
  for (const double noise : {0.0, 0.3}) {
    const RateAdvice advice = advise(known(noise));
    ASSERT_TRUE(advice.falls);
    EXPECT_NEAR(std::log10(advice.steepest), -2, noise > 0 ? 0.35 : 0.05) << noise;
    EXPECT_NEAR(std::log10(advice.rises), 0.5, 0.15) << noise;
    EXPECT_GT(advice.least, advice.steepest);
    EXPECT_LT(advice.least, advice.rises);
    EXPECT_NEAR(advice.suggested / (advice.rises / 10), 1, 0.06) << "to two digits";
  }
  RateSweep calm = known(0);
  calm.rate.resize(150);
  calm.loss.resize(150);
  EXPECT_EQ(advise(calm).rises, 0) << "the sweep ended before the loss rose";
  EXPECT_NEAR(advise(calm).suggested / advise(calm).steepest, 1, 0.06);
  RateSweep early = known(0);
  for (double& rate : early.rate) rate *= 100;
  for (double& loss : early.loss) loss = loss < 1.2 ? 10 : loss;  // it diverges while it falls
  const RateAdvice advice = advise(early);
  ASSERT_TRUE(advice.falls);
  EXPECT_LT(advice.rises, 10);
  EXPECT_NEAR(advice.suggested, advice.rises / 10, 0.06 * advice.suggested);
}

TEST(RateRange, SuggestsNothingIfTheLossDoesNotFall) {
  RateSweep flat = known(0.3);
  std::mt19937 random(5);
  for (double& loss : flat.loss) loss = 2.3 + 0.3 * uniform(random);
  EXPECT_FALSE(advise(flat).falls);
  EXPECT_FALSE(advise(known(0, 10)).falls) << "too few steps for any advice";
}

TEST(RateRange, SweepsAreEqualOnAllRanksGrowEvenlyAndEndAtDivergence) {
  RunConfig c = test::small_run(true, "512");
  std::vector<RateSweep> sweeps(2);
  run_thread_world(2, [&](World& world) { sweeps[std::size_t(world.rank())] = sweep_rates(world, c, 1e-4, 1e-1, 31); });
  ASSERT_EQ(sweeps[0].loss.size(), 31u);
  EXPECT_EQ(sweeps[0].loss, sweeps[1].loss);
  EXPECT_NEAR(sweeps[0].rate[0], 1e-4, 1e-12);
  EXPECT_NEAR(sweeps[0].rate[10], 1e-3, 1e-9);
  EXPECT_NEAR(sweeps[0].rate[30], 1e-1, 1e-9);
  EXPECT_FALSE(sweeps[0].diverged);
  c = test::small_run(false, "512");
  const auto world = solo_world();
  const RateSweep lost = sweep_rates(*world, c, 1, 1e8, 200);
  EXPECT_TRUE(lost.diverged);
  EXPECT_LT(lost.loss.size(), 200u);
  for (const double loss : lost.loss) EXPECT_TRUE(std::isfinite(loss));
}

}  // namespace rate_range_test
}  // namespace millrace
