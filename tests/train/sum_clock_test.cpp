#include "../../src/train/sum_clock.hpp"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// A step whose last sum ends at 10, and that waited for sums from 7 on.
TEST(SumClock, WhatTheStepWaitsForIsExposedAndTheRestHidden) {
  SumClock clock;
  for (int step = 0; step < 2; ++step) clock.add({{0, 100, 1, 2, 6}, {1, 50, 3, 6, 8}, {-1, 8, 8, 8.5, 10}}, 3);
  const auto sums = clock.figures();
  ASSERT_EQ(sums.size(), 3u);
  EXPECT_EQ(sums[0].tag, 0);
  EXPECT_EQ(sums[2].tag, -1) << "buckets come first";
  EXPECT_EQ(sums[0].times, 2u);
  EXPECT_EQ(sums[0].bytes, 200u);
  EXPECT_DOUBLE_EQ(sums[0].queued, 2);
  EXPECT_DOUBLE_EQ(sums[0].busy, 8);
  EXPECT_DOUBLE_EQ(sums[0].exposed, 0);
  EXPECT_DOUBLE_EQ(sums[1].exposed, 2);
  EXPECT_DOUBLE_EQ(sums[2].exposed, 3);
  EXPECT_DOUBLE_EQ(clock.busy_seconds(), 15);
  EXPECT_EQ(clock.bytes(), 316u);
}

TEST(SumClock, ASumThatTheStepItselfRanIsExposedWhenever) {
  SumClock clock;
  clock.add({{0, 100, 1, 2, 6, true}, {1, 50, 3, 6, 8}}, 5);  // four of the five at the first
  const auto sums = clock.figures();
  EXPECT_DOUBLE_EQ(sums[0].exposed, 4);
  EXPECT_DOUBLE_EQ(sums[1].exposed, 1);
}

}  // namespace
}  // namespace millrace
