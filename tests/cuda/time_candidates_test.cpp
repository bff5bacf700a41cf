#include "millrace/plans/time_candidates.hpp"

#include <gtest/gtest.h>

namespace millrace {
namespace time_candidates_test {

constexpr double infinite = std::numeric_limits<double>::infinity();

// A device whose candidates take known times at full speed. A call takes longer by the factor that `slowness` gives for
// the time that the device has worked so far.
struct FakeDevice {
  std::vector<double> real;  // seconds
  std::function<double(double)> slowness = [](double) { return 1.0; };
  double worked = 0;
  struct Measurement {
    std::size_t candidate;
    int calls;
    double begin;  // seconds that the device had worked before
  };
  std::vector<Measurement> measurements = {};

  std::vector<double> run(const TimingRules& rules = {}) {
    return time_candidates(
        real.size(),
        [&](std::size_t c, int calls) {
          measurements.push_back({c, calls, worked});
          if (real[c] == infinite) return infinite;
          const double seconds = real[c] * calls * slowness(worked);
          worked += seconds;
          return seconds;
        },
        rules);
  }
  // The measurements after the warm-up and the single calls.
  std::vector<Measurement> rounds() const {
    const double slow = 3 * *std::min_element(real.begin(), real.end());
    for (std::size_t i = measurements.size(); i-- > 0;)
      if ((measurements[i].candidate == real.size() - 1 || real[measurements[i].candidate] > slow) &&
          measurements[i].calls == 1)
        return {measurements.begin() + std::ptrdiff_t(i) + 1, measurements.end()};
    return {};
  }
};

TEST(TimeCandidates, MeasuresOnlyCandidatesThatAreNotMuchSlowerThanTheBest) {
  FakeDevice device{{1e-5, 1e-6, 2.9e-6, 3.1e-6, 1e-3, 1.4e-6, 2e-6}};
  const auto seconds = device.run();
  for (std::size_t c = 0; c < seconds.size(); ++c)
    if (device.real[c] <= 3e-6)
      EXPECT_NEAR(seconds[c], device.real[c], 1e-12) << c;
    else
      EXPECT_EQ(seconds[c], infinite) << c;
  for (const auto& m : device.rounds()) EXPECT_LE(device.real[m.candidate], 3e-6);
}

TEST(TimeCandidates, CandidatesThatFailScoreInfinity) {
  FakeDevice device{{infinite, 2e-4, infinite, 2e-4}};
  const auto seconds = device.run();
  EXPECT_EQ(seconds[0], infinite);
  EXPECT_NEAR(seconds[1], 2e-4, 1e-12);
  EXPECT_EQ(seconds[2], infinite);
  for (const auto& m : device.rounds()) EXPECT_LT(device.real[m.candidate], infinite);
  FakeDevice nothing{{infinite, infinite}};
  EXPECT_EQ(nothing.run(), (std::vector<double>{infinite, infinite}));
  EXPECT_EQ(nothing.measurements.size(), 4u) << "once to warm up and once to find that it fails";
  EXPECT_TRUE(time_candidates(0, [](std::size_t, int) { return 1.0; }).empty());
}

// A GPU that was idle runs at a third of its clock at first. Whoever is measured then would lose.
TEST(TimeCandidates, TheDeviceWorksForAWhileBeforeATimeCounts) {
  FakeDevice device{{1e-4, 1.1e-4}};
  device.slowness = [](double worked) { return worked < 0.02 ? 3.0 : 1.0; };
  const auto seconds = device.run();
  EXPECT_NEAR(seconds[0], 1e-4, 1e-10);
  EXPECT_NEAR(seconds[1], 1.1e-4, 1e-10);
  double single = 0;
  for (const auto& m : device.measurements)
    if (m.candidate == 1) {
      single = m.begin;
      break;
    }
  EXPECT_GE(single, TimingRules{}.warm_up_seconds);
}

TEST(TimeCandidates, RoundsGoForwardAndBack) {
  FakeDevice device{{1e-4, 1e-4, 1e-4}};
  device.run({.pairs = 2});
  std::vector<std::size_t> order;
  for (const auto& m : device.rounds()) order.push_back(m.candidate);
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0}));
}

// The clock rises all the time, so that each measurement is faster than the one before. Equal candidates score the
// same.
TEST(TimeCandidates, ASteadyDriftFavoursNobody) {
  FakeDevice device{std::vector<double>(8, 1e-3)};
  device.slowness = [calls = 0](double) mutable { return 2.0 - 1e-3 * ++calls; };
  const auto seconds = device.run();
  for (const double s : seconds) EXPECT_NEAR(s, seconds[0], 1e-9 * seconds[0]);
  EXPECT_EQ(choose_candidate(seconds), 0u);
  // A candidate that is better by 3% is found, wherever it stands; the whole drift is more than that.
  for (const std::size_t better : {0u, 3u, 7u}) {
    FakeDevice other = device;
    other.measurements.clear();
    other.real[better] *= 0.97;
    EXPECT_EQ(choose_candidate(other.run()), better);
  }
}

TEST(TimeCandidates, OneSlowMomentDoesNotChangeTheMedian) {
  FakeDevice device{{1e-3, 1e-3, 1e-3}};
  int measured = 0;
  device.slowness = [&](double worked) { return worked > 0.05 && worked < 0.052 && ++measured ? 50.0 : 1.0; };
  for (const double s : device.run()) EXPECT_NEAR(s, 1e-3, 1e-9);
  EXPECT_EQ(measured, 1);
}

TEST(TimeCandidates, ASlowMomentOfTheOnlySingleCallExcludesNobody) {
  FakeDevice device{{1e-3, 1e-3, 1e-3}};
  device.slowness = [&](double worked) { return worked > 0.0305 && worked < 0.0315 ? 50.0 : 1.0; };
  for (const double s : device.run()) EXPECT_NEAR(s, 1e-3, 1e-9);
  const auto slow = std::count_if(device.measurements.begin(), device.measurements.end(),
                                  [](const auto& m) { return m.begin > 0.0305 && m.begin < 0.0315; });
  EXPECT_EQ(slow, 1) << "the second candidate's single call";
}

TEST(TimeCandidates, ShortCallsAreTimedInBatches) {
  FakeDevice device{{2e-6, 5e-6, 1.9e-6}};
  device.run();
  const TimingRules rules;
  for (const auto& m : device.rounds()) {
    EXPECT_GE(m.calls * device.real[m.candidate],
              std::min(rules.batch_seconds, 128 * device.real[m.candidate]) * 0.999);
    EXPECT_LE(m.calls, rules.max_calls);
    EXPECT_GT(m.calls, 1);
  }
  FakeDevice slow{{0.1, 0.11}};
  slow.run();
  for (const auto& m : slow.measurements) EXPECT_EQ(m.calls, 1);
  EXPECT_EQ(slow.measurements.size(), 1u + 2u + 2u * 2u * 5u) << "a long candidate is not repeated needlessly";
}

TEST(TimeCandidates, AClockThatStandsStillEnds) {
  FakeDevice device{{0, 0}};
  EXPECT_EQ(device.run(), (std::vector<double>{0, 0}));
}

TEST(TimeCandidates, TheFirstOfNearlyEqualCandidatesIsChosen) {
  EXPECT_EQ(choose_candidate({1.015, 1.0, 1.5}), 0u);
  EXPECT_EQ(choose_candidate({1.03, 1.0, 1.0}), 1u);
  EXPECT_EQ(choose_candidate({infinite, 2.0}), 1u);
  EXPECT_EQ(choose_candidate({infinite, infinite}), 2u);
  EXPECT_EQ(choose_candidate({}), 0u);
}

}  // namespace time_candidates_test
}  // namespace millrace
