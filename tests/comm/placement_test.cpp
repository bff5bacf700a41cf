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
namespace {

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

TEST(Signals, StopSignalIsKeptUntilCleared) {
  install_stop_signals();
  EXPECT_EQ(stop_signal(), 0);
  std::raise(SIGUSR2);
  EXPECT_EQ(stop_signal(), SIGUSR2);
  clear_stop_signal();
  EXPECT_EQ(stop_signal(), 0);
}

}  // namespace
}  // namespace millrace
