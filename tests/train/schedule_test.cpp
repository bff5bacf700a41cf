#include "millrace/config/schedule.hpp"

#include <gtest/gtest.h>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

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

}  // namespace
}  // namespace millrace
