#include "watchdog/judge.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "watchdog/counted_time.hpp"
#include "watchdog/shared_position.hpp"

namespace millrace::watchdog {
namespace judge_test {

constexpr double timeout = 10;

Position at(int rank, Wait wait, double quiet, std::uint64_t waits = 7) {
  Position p;
  p.rank = rank;
  p.part = Part::train;
  p.wait = wait;
  p.quiet = quiet;
  p.waits = waits;
  p.step = 12;
  std::strcpy(p.host, "node7");
  return p;
}

void expect(const std::vector<Position>& all, Cause cause, const std::vector<int>& ranks) {
  const auto found = judge(all, timeout);
  ASSERT_TRUE(found);
  EXPECT_EQ(int(found->cause), int(cause));
  std::vector<int> blamed;
  for (const Position& p : found->blamed) blamed.push_back(p.rank);
  EXPECT_EQ(blamed, ranks);
}

// A rank that waited for the others, and reads a file now: the time of the first wait is not that of the second.
TEST(SharedPosition, ATimeThatWasCountedBeforeTheLastProgressIsOver) {
  const auto shared = std::make_unique<SharedPosition>();
  shared->beats = 7;
  shared->quiet = 12;
  shared->quiet_beats = 7;
  shared->wait = Wait::barrier;
  EXPECT_EQ(copy_of(*shared, 1).quiet, 12);
  ++shared->beats;
  shared->wait = Wait::file;
  EXPECT_EQ(copy_of(*shared, 1).quiet, 0);
}

TEST(Judge, RanksThatGoOnAreNotBlamed) {
  EXPECT_FALSE(judge({at(0, Wait::none, 1), at(1, Wait::barrier, 9)}, timeout));
  // Rank 0 computes, or reads one file after the other: the others wait longer than the timeout.
  EXPECT_FALSE(judge({at(0, Wait::none, 1), at(1, Wait::barrier, 39), at(2, Wait::barrier, 39)}, timeout));
  EXPECT_FALSE(judge({at(0, Wait::file, 9), at(1, Wait::broadcast, 900)}, timeout));
  // It does not compute, but nobody waits for it.
  EXPECT_FALSE(judge({at(0, Wait::none, 900), at(1, Wait::none, 0)}, timeout));
}

TEST(Judge, ARankWithoutHeartbeatIsBlamedWhateverTheOthersDo) {
  auto stopped = at(1, Wait::barrier, 0);
  stopped.silent = 10;
  expect({at(0, Wait::barrier, 10), stopped, at(2, Wait::none, 0)}, Cause::silent, {1});
}

TEST(Judge, ARankThatWaitsForAFileIsBlamed) {
  expect({at(0, Wait::barrier, 12), at(1, Wait::file, 10)}, Cause::file, {1});
  auto writes = at(0, Wait::none, 0);
  writes.file_quiet = 10;
  writes.file_part = Part::checkpoint;
  expect({writes, at(1, Wait::none, 0)}, Cause::file, {0});
  const std::string line = describe(*judge({writes}, timeout));
  EXPECT_NE(line.find("rank 0 on node7 (checkpoint, file system, after step 12)"), line.npos) << line;
}

TEST(Judge, AnIdleRankIsBlamedOnceOthersWait) {
  expect({at(0, Wait::all_reduce, 8), at(1, Wait::none, 10)}, Cause::idle, {1});
}

TEST(Judge, AnEndlessLoopIsEndedAfterFourTimeouts) {
  expect({at(0, Wait::none, 1), at(1, Wait::all_reduce, 40)}, Cause::busy, {0});
  auto reads_the_index = at(0, Wait::none, 1);
  reads_the_index.part = Part::index;
  EXPECT_FALSE(judge({reads_the_index, at(1, Wait::broadcast, 900)}, timeout));
}

TEST(Judge, OfWaitingRanksTheOneBehindIsBlamed) {
  expect({at(0, Wait::all_reduce, 10, 8), at(1, Wait::barrier, 11, 7), at(2, Wait::all_reduce, 10, 8)}, Cause::behind,
         {1});
  expect({at(0, Wait::barrier, 10), at(1, Wait::barrier, 11)}, Cause::unknown, {0, 1});
}

TEST(Judge, MissingRanksAreNamedWithTheRanksThatAreThere) {
  const auto rank = [](int number, const char* host) {
    Position p = at(number, Wait::finalize, 10);
    std::strcpy(p.host, host);
    return p;
  };
  Verdict v{Cause::missing, {rank(2, "node7"), rank(3, "node7")}, 10, {rank(0, ""), rank(4, ""), rank(5, "")}, true};
  EXPECT_EQ(
      describe(v),
      "at least one of ranks 0, 4-5, not on this host, did not come to MPI_Finalize within 10 s. all of this host, "
      "ranks 2-3 on node7 are there (training, MPI_Finalize, after step 12). look at the other hosts and the network");
  v.missing = {rank(0, "node6"), rank(1, "node6"), rank(4, "node8")};
  EXPECT_NE(describe(v).find("at least one of ranks 0-1 on node6, rank 4 on node8 did not come"), std::string::npos);
  v = {Cause::missing, {rank(2, "node7")}, 10, {rank(1, "")}, false};
  EXPECT_EQ(
      describe(v),
      "rank 1 did not come to MPI_Finalize within 10 s. rank 2 on node7 is there (training, MPI_Finalize, after step "
      "12). look at the hosts and the network");
  for (int r = 0; r < 9; ++r) v.missing.push_back(rank(r, ("n" + std::to_string(r)).c_str()));
  EXPECT_NE(describe(v).find("rank 2 on n2 and 6 more hosts"), std::string::npos) << describe(v);
}

TEST(Judge, FlightRecordNamesAllRanks) {
  const std::string text = flight_record("a \"reason\"", {at(0, Wait::barrier, 1), at(1, Wait::none, 2)}, "now");
  for (const char* part :
       {R"("reason":"a \"reason\"")", R"("rank":1,"host":"node7")", R"("wait":"barrier")", R"("step":12)"})
    EXPECT_NE(text.find(part), text.npos) << part << " is not in " << text;
}

TEST(CountedTime, APauseCountsAsOneTick) {
  TickClock clock(0.5, 100);
  EXPECT_DOUBLE_EQ(clock.tick(100.25), 0.25);
  EXPECT_DOUBLE_EQ(clock.tick(160.25), 0.5);
  EXPECT_DOUBLE_EQ(clock.tick(160.5), 0.25);
}

TEST(CountedTime, BeatsAndCpuTimeAreProgress) {
  ProgressMeter meter;
  EXPECT_EQ(meter.tick(1, 5, 0, true), 0);
  EXPECT_EQ(meter.tick(1, 5, 0, true), 1);
  EXPECT_EQ(meter.tick(1, 5, 0.01, true), 0);
  EXPECT_EQ(meter.tick(1, 5, 0.02, false), 1);
  EXPECT_EQ(meter.tick(1, 6, 0.02, false), 0);
}

}  // namespace judge_test
}  // namespace millrace::watchdog
