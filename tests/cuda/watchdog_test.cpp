#include "cuda/nccl/watchdog.hpp"

#include <gtest/gtest.h>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

using Kind = Watchdog::Kind;

TEST(Watchdog, IsContentWhileNothingIsUnderWay) {
  Watchdog dog(10);
  EXPECT_FALSE(dog.late(1e9));
  dog.done(dog.begin(Kind::sum, 3, 100, 0), 5);
  EXPECT_FALSE(dog.late(1e9));
}

TEST(Watchdog, NamesTheOldestUnfinishedOperationAfterTheTimeout) {
  Watchdog dog(10);
  dog.begin(Kind::sum, 7, 1000, 100);
  dog.begin(Kind::sum, 6, 1000, 101);
  dog.begin(Kind::step, 0, 0, 102);
  EXPECT_FALSE(dog.late(110));
  const auto late = dog.late(110.5);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->tag, 7);
  EXPECT_EQ(late->waiting, 2u);
  EXPECT_EQ(late->done, 0u);
  EXPECT_DOUBLE_EQ(late->seconds, 10.5);
}

TEST(Watchdog, EveryFinishedOperationGivesTheNextOneItsFullTime) {
  Watchdog dog(10);
  std::uint64_t last = 0;
  for (int tag = 0; tag < 5; ++tag) last = dog.begin(Kind::sum, tag, 1, 0);
  EXPECT_EQ(last, 5u);
  for (std::uint64_t k = 1; k <= 5; ++k) {
    EXPECT_FALSE(dog.late(double(k) * 9)) << k;
    dog.done(k, double(k) * 9);
  }
  EXPECT_FALSE(dog.late(1e9));
}

TEST(Watchdog, AReplayIsLateWhenItsCountersStandStillBetweenBeginAndEnd) {
  Watchdog dog(10);
  dog.replays({0, 0}, 0);
  EXPECT_FALSE(dog.late(1e9));
  for (std::uint64_t k = 1; k < 50; ++k) {  // always seen under way, but never the same one
    dog.replays({k, k - 1}, double(k) * 9);
    EXPECT_FALSE(dog.late(double(k) * 9)) << k;
  }
  dog.replays({50, 49}, 500);
  dog.replays({50, 49}, 510);
  EXPECT_FALSE(dog.late(510));
  const auto late = dog.late(510.5);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->done, 49u);
  EXPECT_NE(dog.explain(*late, "nobody").find("the sums of a recorded step"), std::string::npos);
  EXPECT_EQ(dog.begun(), 50u);
  dog.replays({50, 50}, 511);  // done, and nothing under way for long
  EXPECT_FALSE(dog.late(1e9));
  dog.begin(Kind::sum, 0, 1, 1e9);
  EXPECT_EQ(dog.begun(), 51u);
}

TEST(Watchdog, TheOperationThatARecordedStepIsAtIsNamed) {
  Watchdog dog(10);
  Watchdog::Replays at{3, 2, 21, 20, true, Kind::sum, 4, 25 << 20};
  dog.replays(at, 100);
  dog.replays(at, 109);
  at.operations_ended = 21, at.tag = 5;  // it went on: the next one has all its time
  dog.replays(at, 109.5);
  EXPECT_FALSE(dog.late(119));
  auto late = dog.late(120);
  ASSERT_TRUE(late);
  EXPECT_EQ(dog.explain(*late, "nobody").find("waited 10 s for the gradients of sum 5 (25"), 0u)
      << dog.explain(*late, "nobody");
  at.operations_begun = 22;
  dog.replays(at, 120);
  late = dog.late(131);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->done, 21u);
  const std::string text = dog.explain(*late, "nobody");
  EXPECT_EQ(text.find("waited 11 s for sum 5 (25"), 0u) << text;
  EXPECT_NE(text.find(") of a recorded step on the GPU ("), std::string::npos) << text;
  EXPECT_EQ(dog.begun(), 3u + 22u);
}

TEST(Watchdog, AnOperationBegunAfterALongPauseIsNotLateAtOnce) {
  Watchdog dog(10);
  dog.done(dog.begin(Kind::sum, 0, 1, 0), 1);
  dog.begin(Kind::sum, 1, 1, 500);
  EXPECT_FALSE(dog.late(505));
  EXPECT_TRUE(dog.late(511));
}

TEST(Watchdog, DoneCoversAllEarlierOperationsAndMayBeRepeated) {
  Watchdog dog(10);
  dog.begin(Kind::sum, 0, 1, 0), dog.begin(Kind::sum, 1, 1, 0);
  const auto third = dog.begin(Kind::sum, 2, 1, 0);
  dog.done(2, 5), dog.done(1, 14), dog.done(2, 14);  // no progress at 14
  const auto late = dog.late(15.5);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->tag, 2);
  EXPECT_EQ(late->done, 2u);
  dog.done(third, 16);
  EXPECT_FALSE(dog.late(100));
  EXPECT_THROW(dog.done(4, 100), Error);
}

TEST(Watchdog, SaysWhatIsLateAndWho) {
  Watchdog dog(10);
  dog.begin(Kind::sum, 12, 25 << 20, 0);
  const auto late = dog.late(11);
  ASSERT_TRUE(late);
  const std::string text = dog.explain(*late, "late: rank 1, 3 on node7");
  EXPECT_EQ(text.find("waited 11 s for sum 12 (25"), 0u) << text;
  EXPECT_NE(text.find(" on the GPU (late: rank 1, 3 on node7; 0 operations done before"), std::string::npos) << text;
}

}  // namespace
}  // namespace millrace::cuda
