#include "millrace/comm/placement.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <csignal>
#include <mutex>
#include <set>

#include "millrace/system/cores.hpp"
#include "millrace/system/signals.hpp"

namespace millrace {
namespace placement_test {

TEST(Placement, RanksOfAHostGetDisjointCores) {
  const int cores = usable_cores();
  for (int ranks = 1; ranks <= std::min(4, cores); ++ranks) {
    std::mutex mutex;
    std::multiset<int> used;
    run_thread_world(ranks, [&](World& world) {
      const Placement p = plan_placement(world, 0, 0);
      EXPECT_FALSE(p.oversubscribed);
      EXPECT_EQ(p.compute_threads, p.cores);
      EXPECT_GE(p.workers, 1);
      const std::lock_guard lock(mutex);
      used.insert(p.cpus.begin(), p.cpus.end());
    });
    EXPECT_EQ(int(used.size()), cores);
    EXPECT_EQ(std::set<int>(used.begin(), used.end()).size(), used.size());
  }
}

TEST(Placement, MoreRanksThanCoresShareThem) {
  run_thread_world(usable_cores() + 1, [](World& world) {
    const Placement p = plan_placement(world, 0, 0);
    EXPECT_TRUE(p.oversubscribed);
    EXPECT_EQ(p.compute_threads, 1);
  });
}

// Each thread has its own affinity mask, like a process that mpirun or Slurm has bound.
TEST(Placement, PartlyOverlappingBindingsAreReportedOnAllRanks) {
  if (usable_cores() < 2) GTEST_SKIP() << "one core";
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  std::vector<int> cores;
  for (int c = 0; c < CPU_SETSIZE && cores.size() < 2; ++c)
    if (CPU_ISSET(c, &all)) cores.push_back(c);
  const auto planned = [&](const std::vector<std::vector<int>>& given) {
    std::mutex mutex;
    std::set<std::string> warnings;
    run_thread_world(int(given.size()), [&](World& world) {
      cpu_set_t set;
      CPU_ZERO(&set);
      for (const int c : given[std::size_t(world.rank())]) CPU_SET(c, &set);
      EXPECT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
      const Placement p = plan_placement(world, 0, 0);
      const std::lock_guard lock(mutex);
      warnings.insert(p.warning);
    });
    EXPECT_EQ(warnings.size(), 1u);
    return *warnings.begin();
  };
  EXPECT_EQ(planned({cores, cores}), "");
  EXPECT_EQ(planned({{cores[0]}, {cores[1]}, {cores[0]}, {cores[1]}}).find("overlap"), std::string::npos)
      << "ranks with equal masks share their cores";
  const std::string said = planned({{cores[1]}, {cores[0]}, cores});
  EXPECT_NE(
      said.find(fmt::format("ranks 1 and 2 of one host are bound to different cores that overlap ({} and {},{}). ",
                            cores[0], cores[0], cores[1])),
      said.npos)
      << said;
}

// Two ranks of a host, or one, with an affinity mask of two cores; each has the cores near its GPU.
TEST(Placement, RanksGetCoresNearTheirGpuIfThatTakesNoneAway) {
  if (usable_cores() < 2) GTEST_SKIP() << "one core";
  const std::vector<int> all = allowed_cpus();
  const std::vector<int> two{all[0], all[1]}, first{all[0]}, second{all[1]};
  const auto planned = [](const std::vector<int>& mask, const std::vector<std::vector<int>>& near) {
    std::vector<Placement> out(near.size());
    run_thread_world(int(near.size()), [&](World& world) {
      allow_cpus(mask);
      out[std::size_t(world.rank())] = plan_placement(world, 0, 0, near[std::size_t(world.rank())]);
    });
    return out;
  };
  const auto swapped = planned(two, {second, first});
  EXPECT_EQ(swapped[0].cpus, second);
  EXPECT_EQ(swapped[0].near_cpus, second);
  EXPECT_EQ(swapped[1].cpus, first);
  const auto unknown = planned(two, {second, {}});
  EXPECT_EQ(unknown[0].cpus, first);
  EXPECT_TRUE(unknown[0].near_cpus.empty());
  const auto alone = planned(two, {second});
  EXPECT_EQ(alone[0].cpus, two) << "it would lose a core";
  EXPECT_TRUE(alone[0].near_cpus.empty());
  const auto both_near_one = planned(two, {first, first});
  EXPECT_TRUE(both_near_one[0].near_cpus.empty());
  EXPECT_EQ(both_near_one[1].cpus, second);
  const auto far = planned(first, {second});
  EXPECT_EQ(far[0].cpus, first);
  EXPECT_NE(far[0].warning.find("rank 0 is bound to cores far from its GPU"), std::string::npos) << far[0].warning;
  EXPECT_EQ(planned(two, {two})[0].warning, "");
}

TEST(Cores, ListsOfLinuxAreRead) {
  EXPECT_EQ(parse_cpu_list("0-2,8,10-11"), (std::vector<int>{0, 1, 2, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
  EXPECT_EQ(parse_cpu_list("none"), std::vector<int>{});
}

TEST(Signals, StopSignalIsKeptUntilCleared) {
  install_stop_signals();
  EXPECT_EQ(stop_signal(), 0);
  std::raise(SIGUSR2);
  EXPECT_EQ(stop_signal(), SIGUSR2);
  clear_stop_signal();
  EXPECT_EQ(stop_signal(), 0);
}

}  // namespace placement_test
}  // namespace millrace
