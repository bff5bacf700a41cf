#include "millrace/telemetry/timeline.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <thread>

namespace millrace {
namespace timeline_test {

using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;

double sum(const std::array<double, phase_count>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}
double of(const Timeline& t, Phase p) { return t.seconds()[std::size_t(p)]; }

// The wall time is read before and after the phases, so their sum lies in between, except for rounding.
void expect_whole(const Timeline& t) {
  const double before = t.wall_seconds(), all = sum(t.seconds()), after = t.wall_seconds();
  EXPECT_GE(all, before - 1e-9 * before);
  EXPECT_LE(all, after + 1e-9 * after);
}

TEST(Timeline, PhasesSumToTheWallTime) {
  Timeline t;
  expect_whole(t);
  for (int round = 0; round < 2000; ++round) t.enter(Phase(round % phase_count));
  t.add(Phase::forward, 0.25);
  expect_whole(t);
  std::this_thread::sleep_for(2ms);  // the current phase counts too
  expect_whole(t);
  const Timeline since(Timeline::Clock::now() - 1h);
  EXPECT_GE(of(since, Phase::startup), 3600);
  expect_whole(since);
}

TEST(Timeline, TimeCountsForTheCurrentPhaseOnly) {
  Timeline t;
  EXPECT_EQ(t.enter(Phase::forward), Phase::startup);
  const double startup = of(t, Phase::startup);
  const auto begun = Timeline::Clock::now();
  std::this_thread::sleep_for(5ms);
  const double inside = Seconds(Timeline::Clock::now() - begun).count();
  EXPECT_EQ(t.enter(Phase::checkpoint), Phase::forward);
  const double forward = of(t, Phase::forward);
  EXPECT_GE(forward, inside);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(of(t, Phase::forward), forward);
  EXPECT_EQ(of(t, Phase::startup), startup);
  EXPECT_GE(of(t, Phase::checkpoint), 5e-3);
  for (const Phase p : {Phase::data_wait, Phase::backward, Phase::communication, Phase::other}) EXPECT_EQ(of(t, p), 0);
}

TEST(Timeline, ScopesNestAndRestoreThePreviousPhase) {
  Timeline t;
  {
    const Timeline::Scope outer(t, Phase::evaluation);
    {
      const Timeline::Scope inner(t, Phase::checkpoint);
      EXPECT_EQ(t.enter(Phase::checkpoint), Phase::checkpoint);
    }
    EXPECT_EQ(t.enter(Phase::evaluation), Phase::evaluation);
  }
  EXPECT_EQ(t.enter(Phase::startup), Phase::startup);
}

TEST(Timeline, AddMovesTimeOutOfTheCurrentPhase) {
  Timeline t(Timeline::Clock::now() - 10s);
  t.enter(Phase::other);
  const auto before = t.seconds();
  t.add(Phase::backward, 0.5);
  t.add(Phase::backward, 0.25);
  t.add(Phase::other, 1);  // from the current phase to itself: no change
  EXPECT_DOUBLE_EQ(of(t, Phase::backward) - before[std::size_t(Phase::backward)], 0.75);
  // The tolerance covers the time that passes during the test.
  EXPECT_NEAR(of(t, Phase::other) - before[std::size_t(Phase::other)], -0.75, 0.2);
  EXPECT_EQ(of(t, Phase::startup), before[std::size_t(Phase::startup)]);
  expect_whole(t);
}

// timestamp_cost() is a minimum, so other work on the machine does not matter. Half a percent of a step of 5 ms with 40
// timestamps is 625 ns for each.
TEST(Timeline, EnteringAPhaseCostsLittle) {
  const double cost = timestamp_cost();
  EXPECT_GT(cost, 0);
  EXPECT_LT(40 * cost, 0.005 * 5e-3);
}

TEST(Timeline, EveryPhaseHasItsOwnName) {
  std::set<std::string> names;
  for (int p = 0; p < phase_count; ++p) names.insert(name_of(Phase(p)));
  EXPECT_EQ(names.size(), std::size_t(phase_count));
  EXPECT_EQ(names.count(""), 0u);
}

}  // namespace timeline_test
}  // namespace millrace
