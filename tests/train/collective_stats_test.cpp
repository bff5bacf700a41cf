#include "millrace/train/distributed/collective_stats.hpp"

#include <gtest/gtest.h>

#include "millrace/train/distributed/buckets.hpp"

namespace millrace {
namespace collective_stats_test {

// The last all-reduce of the step ends at 10, and the step waits for it from 7 on.
TEST(CollectiveStats, OnlyTheTimeThatTheStepWaitsIsExposed) {
  CollectiveStats clock;
  for (int step = 0; step < 2; ++step)
    clock.add({{0, 100, 1, 2, 6}, {1, 50, 3, 6, 8}, {-1, 8, 8, 8.5, 10}},
              {.sums = 3, .began = 0.5, .sums_needed = 6.5});
  const auto sums = clock.stats();
  ASSERT_EQ(sums.size(), 3u);
  EXPECT_EQ(sums[0].tag, 0);
  EXPECT_EQ(sums[2].tag, -1) << "buckets come first";
  EXPECT_EQ(sums[0].times, 2u);
  EXPECT_EQ(sums[0].bytes, 200u);
  EXPECT_DOUBLE_EQ(sums[0].queued, 2);
  EXPECT_DOUBLE_EQ(sums[0].busy, 8);
  EXPECT_DOUBLE_EQ(sums[0].exposed, 0);
  EXPECT_DOUBLE_EQ(sums[0].ready, 1) << "counted from the begin of the step";
  EXPECT_DOUBLE_EQ(sums[1].ready, 5);
  EXPECT_DOUBLE_EQ(sums[1].needed, 13);
  EXPECT_DOUBLE_EQ(sums[1].exposed, 2);
  EXPECT_DOUBLE_EQ(sums[2].exposed, 3);
  EXPECT_DOUBLE_EQ(clock.busy_seconds(), 15);
  EXPECT_EQ(clock.bytes(), 316u);
}

// The step waits for what norms exchange from the moment that it begins; the waits for gradients are others.
TEST(CollectiveStats, AnExchangeOfNormsIsFullyExposed) {
  CollectiveStats clock;
  clock.add({{norm_forward_tag, 100, 1, 1, 2, true, CollectiveOp::all_gather},
             {norm_backward_tag, 100, 4, 4, 7, true, CollectiveOp::all_gather},
             {0, 400, 5, 7, 9}},
            {.sums = 1, .began = 0.5, .sums_needed = 7.5});
  const auto stats = clock.stats();
  ASSERT_EQ(stats.size(), 3u);
  EXPECT_DOUBLE_EQ(stats[0].exposed, 1);  // the bucket
  EXPECT_DOUBLE_EQ(stats[1].exposed, 3);  // tags ascend
  EXPECT_DOUBLE_EQ(stats[1].needed, 3.5);
  EXPECT_DOUBLE_EQ(stats[2].exposed, 1);
  EXPECT_DOUBLE_EQ(stats[2].ready, 0.5);
}

TEST(CollectiveStats, ABlockingAllReduceIsFullyExposed) {
  CollectiveStats clock;
  clock.add({{0, 100, 1, 2, 6, true}, {1, 50, 3, 6, 8}}, {.sums = 5});  // four of the five seconds are in the first
  const auto sums = clock.stats();
  EXPECT_DOUBLE_EQ(sums[0].exposed, 4);
  EXPECT_DOUBLE_EQ(sums[1].exposed, 1);
}

// With ZeRO. Weights are all-gathered from 0 on, bucket 1 first. The forward pass waits for bucket 1 from 1 to 2, and
// for bucket 0 from 3.5 to 4. The step waits for the reduce-scatters from 11 to 12, and for the all-reduce of the
// squares from 13 to 13.5.
TEST(CollectiveStats, AllGatherAndReduceScatterOfABucketAreCountedSeparately) {
  using enum CollectiveOp;
  CollectiveStats clock;
  const std::vector<CommSpan> spans{{1, 400, 0, 0, 2, false, all_gather},
                                    {0, 400, 0, 2, 4, false, all_gather},
                                    {1, 400, 7, 8, 10, false, reduce_scatter},
                                    {0, 400, 9, 10, 12, false, reduce_scatter},
                                    {-2, 8, 13, 13, 13.5, false, all_reduce}};
  for (int step = 0; step < 2; ++step)
    clock.add(spans, {.gathers = {0.5, 1},
                      .sums = 1,
                      .squares = 0.5,
                      .sums_needed = 11,
                      .squares_needed = 13,
                      .gathers_needed = {3.5, 1}});
  const auto sums = clock.stats();
  ASSERT_EQ(sums.size(), 5u);
  const double exposed[] = {1, 0.5, 0, 1, 0.5}, queued[] = {1, 2, 1, 0, 0}, needed[] = {11, 3.5, 11, 1, 13};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i].tag, i < 4 ? int(i / 2) : -2);
    EXPECT_EQ(sums[i].op, i == 4 ? all_reduce : i % 2 ? all_gather : reduce_scatter) << i;
    EXPECT_EQ(sums[i].times, 2u) << i;
    EXPECT_DOUBLE_EQ(sums[i].exposed, 2 * exposed[i]) << i;
    EXPECT_DOUBLE_EQ(sums[i].queued, 2 * queued[i]) << i;
    EXPECT_DOUBLE_EQ(sums[i].needed, 2 * needed[i]) << i;
  }
  EXPECT_DOUBLE_EQ(sums[0].bus_rate(2), 0.5 * 800 / 4) << "half of its bytes";
  EXPECT_DOUBLE_EQ(sums[1].bus_rate(4), 0.75 * 800 / 4);
  EXPECT_DOUBLE_EQ(sums[4].bus_rate(4), 1.5 * 16 / 1);
}

TEST(CollectiveStats, ABlockingAllGatherIsNotPartOfTheWaitForGradients) {
  using enum CollectiveOp;
  CollectiveStats clock;
  clock.add({{0, 100, 0, 0, 3, true, all_gather}, {0, 100, 5, 6, 8, false, reduce_scatter}},
            {.gathers = {0}, .sums = 1});
  const auto sums = clock.stats();
  EXPECT_DOUBLE_EQ(sums[0].exposed, 1);
  EXPECT_DOUBLE_EQ(sums[1].exposed, 3);
}

// The optimizer waits for the squares from 5 to 6 and for the updates of muon from 7 to 9, three seconds in all. The
// all-gather of the weights of bucket 0 is another operation.
TEST(CollectiveStats, UpdatesOfMuonAreAWaitOfTheOptimizer) {
  using enum CollectiveOp;
  CollectiveStats clock;
  clock.add({{0, 100, 0, 0, 1, false, all_gather},
             {squares_tag, 8, 5, 5, 6},
             {updates_tag, 400, 7, 7, 8, false, all_gather},
             {updates_tag, 400, 7, 8, 9, false, all_gather}},
            {.gathers = {0.5}, .squares = 3, .squares_needed = 5, .gathers_needed = {0.5}});
  const auto stats = clock.stats();
  ASSERT_EQ(stats.size(), 3u);
  EXPECT_DOUBLE_EQ(stats[0].exposed, 0.5);
  EXPECT_EQ(stats[1].tag, updates_tag);
  EXPECT_EQ(stats[1].times, 2u);
  EXPECT_DOUBLE_EQ(stats[1].exposed, 2);
  EXPECT_DOUBLE_EQ(stats[1].needed, 10);
  EXPECT_EQ(stats[2].tag, squares_tag);
}

}  // namespace collective_stats_test
}  // namespace millrace
