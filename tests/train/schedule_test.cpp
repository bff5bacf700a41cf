#include "millrace/config/schedule.hpp"

#include <gtest/gtest.h>

#include "millrace/base/error.hpp"

namespace millrace {
namespace schedule_test {

OptimOptions options(LrSchedule schedule) {
  OptimOptions o;
  o.lr = 0.8;
  o.schedule = schedule;
  return o;
}

TEST(Schedule, CosineStartsAtLrAndEndsAtMinLr) {
  OptimOptions o = options(LrSchedule::cosine);
  o.min_lr = 0.1;
  const Schedule s(o, 10, 100, 32);
  EXPECT_DOUBLE_EQ(s.learning_rate(0), 0.8);
  EXPECT_NEAR(s.learning_rate(50), 0.45, 1e-12);
  EXPECT_NEAR(s.learning_rate(100), 0.1, 1e-12);
}

TEST(Schedule, WarmUpIsLinearAndNeverZero) {
  OptimOptions o = options(LrSchedule::constant);
  o.warmup = 0.4;  // four of ten steps
  const Schedule s(o, 10, 100, 32);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(s.learning_rate(i), 0.8 * (i + 1) / 5, 1e-12);
  EXPECT_DOUBLE_EQ(s.learning_rate(4), 0.8);
}

TEST(Schedule, StepsAtMilestones) {
  OptimOptions o = options(LrSchedule::step);
  o.milestones = {2, 3};
  o.gamma = 0.5;
  const Schedule s(o, 10, 100, 32);
  EXPECT_DOUBLE_EQ(s.learning_rate(19), 0.8);
  EXPECT_DOUBLE_EQ(s.learning_rate(20), 0.4);
  EXPECT_DOUBLE_EQ(s.learning_rate(30), 0.2);
}

TEST(Schedule, PolynomialFallsLikeAPowerAfterTheWarmUp) {
  OptimOptions o = options(LrSchedule::polynomial);
  o.power = 3;
  o.min_lr = 0.1;
  o.warmup = 2;
  const Schedule s(o, 10, 100, 32);
  EXPECT_DOUBLE_EQ(s.learning_rate(20), 0.8);
  EXPECT_NEAR(s.learning_rate(60), 0.1 + 0.7 / 8, 1e-12);
  EXPECT_NEAR(s.learning_rate(100), 0.1, 1e-12);
}

TEST(Schedule, WsdIsConstantUntilTheDecayOfTheLastSteps) {
  OptimOptions o = options(LrSchedule::wsd);
  o.warmup = 1;
  o.decay = 0.2;
  o.min_lr = 0.1;
  const auto rate = [&](std::int64_t step) { return Schedule(o, 10, 100, 32).learning_rate(step); };
  EXPECT_NEAR(rate(4), 0.8 * 5 / 11, 1e-12);
  for (const std::int64_t step : {10, 50, 80}) EXPECT_DOUBLE_EQ(rate(step), 0.8) << step;
  EXPECT_NEAR(rate(85), 0.1 + 0.7 * 0.75, 1e-12);
  EXPECT_NEAR(rate(100), 0.1, 1e-12);
  o.decay_shape = DecayShape::sqrt;
  EXPECT_NEAR(rate(85), 0.1 + 0.7 * 0.5, 1e-12);
  o.decay_shape = DecayShape::cosine;
  EXPECT_NEAR(rate(90), 0.45, 1e-12);
}

TEST(Schedule, TheDecayOfWsdMayBeginAtTheEndOfTheWarmUpButNotBefore) {
  OptimOptions o = options(LrSchedule::wsd);
  o.warmup = 1;
  o.decay = 0.9;
  const Schedule s(o, 10, 100, 32);
  EXPECT_NEAR(s.learning_rate(9), 0.8 * 10 / 11, 1e-12);
  EXPECT_NEAR(s.learning_rate(55), 0.4, 1e-12);
  o.warmup = 1.1;
  try {
    Schedule(o, 10, 100, 32);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::config);
    EXPECT_STREQ(error.what(),
                 "optim.decay: the last 0.9 of 100 steps overlap with the warm-up of 11 steps. lower optim.decay or "
                 "optim.warmup");
  }
}

// Step number pct_start * steps - 1 is the peak, and the last step is the lowest, as in PyTorch.
TEST(Schedule, OneCycleRisesAndFallsAlongACosine) {
  OptimOptions o = options(LrSchedule::one_cycle);
  const Schedule s(o, 10, 110, 32);
  EXPECT_DOUBLE_EQ(s.learning_rate(0), 0.8 / 25);
  EXPECT_NEAR(s.learning_rate(16), (0.8 + 0.8 / 25) / 2, 1e-12);
  EXPECT_DOUBLE_EQ(s.learning_rate(32), 0.8);
  EXPECT_NEAR(s.learning_rate(109), 0.8 / 25 / 1e4, 1e-15);
  EXPECT_NEAR(s.learning_rate(200), 0.8 / 25 / 1e4, 1e-15);
  EXPECT_NEAR(Schedule(o, 10, 1, 32).learning_rate(0), 0.8 / 25 / 1e4, 1e-15);
}

TEST(Schedule, LinearScalingRuleMultipliesByTheBatch) {
  OptimOptions o = options(LrSchedule::constant);
  o.lr_batch = 256;
  EXPECT_DOUBLE_EQ(Schedule(o, 10, 100, 1024).learning_rate(0), 3.2);
}

TEST(CheckpointInterval, ReadsStepsEpochsAndTime) {
  EXPECT_EQ(CheckpointInterval::parse("500").steps, 500);
  EXPECT_EQ(CheckpointInterval::parse("1.5e").epochs, 1.5);
  EXPECT_EQ(CheckpointInterval::parse("10m").seconds, 600);
  EXPECT_TRUE(CheckpointInterval::parse("none").never());
  EXPECT_TRUE(CheckpointInterval::parse("auto").automatic);
  EXPECT_FALSE(CheckpointInterval::parse("auto").never());
  for (const char* text : {"often", "-3", "0", "0e", "0s", "inf", "1e300", ""})
    EXPECT_THROW(CheckpointInterval::parse(text), Error) << text;
}

}  // namespace schedule_test
}  // namespace millrace
