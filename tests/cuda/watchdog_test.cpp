#include "cuda/nccl/watchdog.hpp"

#include <gtest/gtest.h>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace watchdog_test {

using Kind = Watchdog::Kind;

TEST(Watchdog, ReportsNothingWhileNoOperationRuns) {
  Watchdog watchdog(10);
  EXPECT_FALSE(watchdog.late(1e9));
  watchdog.done(watchdog.begin(Kind::sum, 3, 100, 0), 5);
  EXPECT_FALSE(watchdog.late(1e9));
}

TEST(Watchdog, NamesTheOldestUnfinishedOperationAfterTheTimeout) {
  Watchdog watchdog(10);
  watchdog.begin(Kind::sum, 7, 1000, 100);
  watchdog.begin(Kind::sum, 6, 1000, 101);
  watchdog.begin(Kind::step, 0, 0, 102);
  EXPECT_FALSE(watchdog.late(110));
  const auto late = watchdog.late(110.5);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->tag, 7);
  EXPECT_EQ(late->waiting, 2u);
  EXPECT_EQ(late->done, 0u);
  EXPECT_DOUBLE_EQ(late->seconds, 10.5);
}

TEST(Watchdog, EveryFinishedOperationRestartsTheTimeout) {
  Watchdog watchdog(10);
  std::uint64_t last = 0;
  for (int tag = 0; tag < 5; ++tag) last = watchdog.begin(Kind::sum, tag, 1, 0);
  EXPECT_EQ(last, 5u);
  for (std::uint64_t k = 1; k <= 5; ++k) {
    EXPECT_FALSE(watchdog.late(double(k) * 9)) << k;
    watchdog.done(k, double(k) * 9);
  }
  EXPECT_FALSE(watchdog.late(1e9));
}

TEST(Watchdog, AReplayIsStalledWhenItsCountersDoNotChangeBetweenBeginAndEnd) {
  Watchdog watchdog(10);
  watchdog.replays({0, 0}, 0);
  EXPECT_FALSE(watchdog.late(1e9));
  for (std::uint64_t k = 1; k < 50; ++k) {  // a replay runs at every check, but never the same one
    watchdog.replays({k, k - 1}, double(k) * 9);
    EXPECT_FALSE(watchdog.late(double(k) * 9)) << k;
  }
  watchdog.replays({50, 49}, 500);
  watchdog.replays({50, 49}, 510);
  EXPECT_FALSE(watchdog.late(510));
  const auto late = watchdog.late(510.5);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->done, 49u);
  EXPECT_NE(watchdog.explain(*late, "nobody").find("the collectives of a captured step"), std::string::npos);
  EXPECT_EQ(watchdog.begun(), 50u);
  watchdog.replays({50, 50}, 511);  // done, and then nothing runs for a long time
  EXPECT_FALSE(watchdog.late(1e9));
  watchdog.begin(Kind::sum, 0, 1, 1e9);
  EXPECT_EQ(watchdog.begun(), 51u);
}

TEST(Watchdog, TheCurrentOperationOfACapturedStepIsNamed) {
  Watchdog watchdog(10);
  Watchdog::Replays at{3, 2, 21, 20, true, Kind::sum, 4, 25 << 20};
  watchdog.replays(at, 100);
  watchdog.replays(at, 109);
  at.operations_ended = 21;  // progress: the timeout restarts for the next operation
  at.tag = 5;
  watchdog.replays(at, 109.5);
  EXPECT_FALSE(watchdog.late(119));
  auto late = watchdog.late(120);
  ASSERT_TRUE(late);
  EXPECT_EQ(watchdog.explain(*late, "nobody").find("waited 10 s for the gradients of all-reduce 5 (25"), 0u)
      << watchdog.explain(*late, "nobody");
  at.operations_begun = 22;
  watchdog.replays(at, 120);
  late = watchdog.late(131);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->done, 21u);
  const std::string text = watchdog.explain(*late, "nobody");
  EXPECT_EQ(text.find("waited 11 s for all-reduce 5 (25"), 0u) << text;
  EXPECT_NE(text.find(") of a captured step on the GPU ("), std::string::npos) << text;
  EXPECT_EQ(watchdog.begun(), 3u + 22u);
}

TEST(Watchdog, AnOperationThatBeginsAfterALongPauseIsNotStalledAtOnce) {
  Watchdog watchdog(10);
  watchdog.done(watchdog.begin(Kind::sum, 0, 1, 0), 1);
  watchdog.begin(Kind::sum, 1, 1, 500);
  EXPECT_FALSE(watchdog.late(505));
  EXPECT_TRUE(watchdog.late(511));
}

TEST(Watchdog, DoneIncludesAllEarlierOperationsAndMayBeRepeated) {
  Watchdog watchdog(10);
  watchdog.begin(Kind::sum, 0, 1, 0);
  watchdog.begin(Kind::sum, 1, 1, 0);
  const auto third = watchdog.begin(Kind::sum, 2, 1, 0);
  watchdog.done(2, 5);
  watchdog.done(1, 14);  // no progress at 14
  watchdog.done(2, 14);
  const auto late = watchdog.late(15.5);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->tag, 2);
  EXPECT_EQ(late->done, 2u);
  watchdog.done(third, 16);
  EXPECT_FALSE(watchdog.late(100));
  EXPECT_THROW(watchdog.done(4, 100), Error);
}

TEST(Watchdog, NamesTheStalledOperationAndTheLateRanks) {
  Watchdog watchdog(10);
  watchdog.begin(Kind::sum, 12, 25 << 20, 0);
  const auto late = watchdog.late(11);
  ASSERT_TRUE(late);
  const std::string text = watchdog.explain(*late, "late: rank 1, 3 on node7");
  EXPECT_EQ(text.find("waited 11 s for all-reduce 12 (25"), 0u) << text;
  EXPECT_NE(text.find(" on the GPU (late: rank 1, 3 on node7; 0 operations completed before"), std::string::npos)
      << text;
}

}  // namespace watchdog_test
}  // namespace millrace::cuda
