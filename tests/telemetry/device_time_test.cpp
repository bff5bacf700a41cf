#include "millrace/telemetry/device_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "millrace/telemetry/device_health_stats.hpp"

namespace millrace {
namespace device_time_test {

using Kind = Activity::Kind;
constexpr std::int64_t ms = 1000000;

Activity activity(Kind kind, const char* name, std::int64_t began_ms, std::int64_t ended_ms,
                  const char* label = nullptr, std::uint64_t label_instance = 0) {
  return {kind, name, began_ms * ms, ended_ms * ms, label, label_instance};
}

TEST(Intervals, OverlappingNestedAdjacentAndEmptyIntervalsAreMerged) {
  EXPECT_EQ(merge_intervals({}), std::vector<Interval>());
  EXPECT_EQ(merge_intervals({{5, 5}}), std::vector<Interval>());
  EXPECT_EQ(merge_intervals({{20, 30}, {0, 10}, {5, 12}, {22, 25}, {30, 31}, {12, 12}}),
            (std::vector<Interval>{{0, 12}, {20, 31}}));
  EXPECT_EQ(merge_intervals({{0, 100}, {10, 20}, {30, 40}, {50, 120}}), (std::vector<Interval>{{0, 120}}));
}

TEST(Intervals, LengthOutsideCountsWhatTheOtherDoesNotCover) {
  const std::vector<Interval> sums{{0, 10}, {20, 40}, {50, 60}};
  EXPECT_EQ(length_outside(sums, {}), 40);
  EXPECT_EQ(length_outside(sums, {{0, 100}}), 0);
  EXPECT_EQ(length_outside(sums, {{5, 25}, {30, 35}, {38, 55}}), 5 + 5 + 3 + 5);
  EXPECT_EQ(length_outside({}, sums), 0);
}

TEST(Intervals, LengthsMatchACountOfAllPoints) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto some = [&] {
      std::vector<Interval> out;
      for (int i = int(random() % 12); i > 0; --i) {
        const std::int64_t begin = random() % 60;
        out.emplace_back(begin, begin + random() % 15);
      }
      return out;
    };
    const auto a = some(), b = some();
    const auto covers = [](const std::vector<Interval>& all, std::int64_t point) {
      return std::any_of(all.begin(), all.end(), [&](auto& i) { return i.first <= point && point < i.second; });
    };
    std::int64_t in_a = 0, only_a = 0;
    for (std::int64_t point = 0; point < 80; ++point) {
      in_a += covers(a, point);
      only_a += covers(a, point) && !covers(b, point);
    }
    EXPECT_EQ(length(merge_intervals(a)), in_a);
    EXPECT_EQ(length_outside(merge_intervals(a), merge_intervals(b)), only_a);
  }
}

TEST(DeviceTimeCollector, DistinguishesBusyComputingAndExposedTime) {
  DeviceTimeCollector times;
  times.add(
      {activity(Kind::sum, "ncclSum", 8, 20),  // 8..10 during a kernel, 10..15 alone, 15..18 during another kernel
       activity(Kind::kernel, "conv", 0, 10), activity(Kind::kernel, "bias", 2, 4),
       activity(Kind::kernel, "conv", 15, 18), activity(Kind::copy, "", 19, 25), activity(Kind::copy, "", 1, 3),
       activity(Kind::kernel, "update", 38, 40)},
      2);
  const DeviceTime t = times.stats();
  EXPECT_EQ(t.steps, 2);
  EXPECT_NEAR(t.seconds, 0.040, 1e-12);
  EXPECT_NEAR(t.busy, 0.027, 1e-12);
  EXPECT_NEAR(t.computing, 0.015, 1e-12);
  EXPECT_NEAR(t.exposed_sums, 0.007, 1e-12);
  EXPECT_NEAR(t.exposed_copies, 0.005, 1e-12);
  ASSERT_EQ(t.kernels.size(), 4u) << "copies are not kernels";
  EXPECT_EQ(t.kernels[0].name, "conv");
  EXPECT_EQ(t.kernels[0].launches, 2u);
  EXPECT_NEAR(t.kernels[0].seconds, 0.013, 1e-12);
  EXPECT_EQ(t.kernels[0].least_seconds, 0) << "no roofline is known";
  EXPECT_EQ(t.kernels[1].name, "ncclSum");
}

TEST(DeviceTimeCollector, WindowsAddUpWithoutTheTimeBetweenThem) {
  DeviceTimeCollector times;
  times.add({}, 5);
  times.add({activity(Kind::kernel, "a", 0, 10)}, 1);
  times.add({activity(Kind::kernel, "a", 1000, 1010), activity(Kind::kernel, "b", 1015, 1020)}, 1);
  const DeviceTime t = times.stats(1);
  EXPECT_EQ(t.steps, 2) << "an empty window does not count";
  EXPECT_NEAR(t.seconds, 0.030, 1e-12);
  EXPECT_NEAR(t.busy, 0.025, 1e-12);
  ASSERT_EQ(t.kernels.size(), 1u);
  EXPECT_EQ(t.kernels[0].launches, 2u);
}

TEST(DeviceTimeCollector, RooflinesLearntFromLabelledLaunchesApplyToReplayedLaunches) {
  const char *const conv = "conv1 forward", *const norm = "norm1 forward";
  DeviceTimeCollector times({{conv, 0.003}, {norm, 0.001}});
  // An operation with one kernel, an operation with two kernels of which the reduction takes a quarter of the time, and
  // a launch without a roofline.
  times.learn({activity(Kind::kernel, "conv_kernel", 0, 6, conv, 1), activity(Kind::kernel, "reduce", 6, 7, norm, 2),
               activity(Kind::kernel, "apply", 7, 10, norm, 2),
               activity(Kind::kernel, "update", 10, 12, "optimizer", 3),
               activity(Kind::kernel, "conv_kernel", 20, 24, conv, 4)});
  times.add({activity(Kind::kernel, "conv_kernel", 0, 4), activity(Kind::kernel, "reduce", 4, 6),
             activity(Kind::kernel, "apply", 6, 8), activity(Kind::kernel, "update", 8, 9)},
            1);
  std::map<std::string, double> share;
  for (const KernelTime& k : times.stats().kernels) share[k.name] = k.least_seconds / k.seconds;
  EXPECT_NEAR(share["conv_kernel"], 3.0 / 4, 1e-9);
  EXPECT_NEAR(share["reduce"], 0.25 / 2, 1e-9);
  EXPECT_NEAR(share["apply"], 0.75 / 2, 1e-9);
  EXPECT_EQ(share["update"], 0);
  // A launch in less time than its bound has no share of it.
  DeviceTimeCollector cached({{conv, 0.003}});
  cached.learn({activity(Kind::kernel, "conv_kernel", 0, 6, conv, 1)});
  cached.add({activity(Kind::kernel, "conv_kernel", 0, 1)}, 1);
  EXPECT_FALSE(cached.stats().kernels.front().has_bound());
  EXPECT_TRUE(cached.stats().kernels.front().passes_bound());
}

TEST(DeviceHealth, SamplesBecomeMeansExtremesAndShares) {
  DeviceHealthStats f;
  f.add({.clock_mhz = 1900, .top_clock_mhz = 1980, .watts = 600, .limit_watts = 700, .celsius = 60, .joules = 5000});
  f.add({.clock_mhz = 1500,
         .top_clock_mhz = 1980,
         .watts = 700,
         .limit_watts = 700,
         .celsius = 71,
         .joules = 5650,
         .throttle_reasons = {"power cap"}});
  f.add({.clock_mhz = 1700, .throttle_reasons = {"power cap", "heat"}});  // some values may be missing
  f.add({});
  EXPECT_EQ(f.samples, 4);
  EXPECT_NEAR(f.clock_mhz, 1700, 1e-9);
  EXPECT_EQ(f.least_clock_mhz, 1500);
  EXPECT_EQ(f.top_clock_mhz, 1980);
  EXPECT_NEAR(f.watts, 650, 1e-9);
  EXPECT_EQ(f.celsius, 71);
  EXPECT_EQ(f.joules, 650);
  EXPECT_NEAR(f.throttle_reasons["power cap"], 0.5, 1e-9);
  EXPECT_NEAR(f.throttle_reasons["heat"], 0.25, 1e-9);
}

}  // namespace device_time_test
}  // namespace millrace
