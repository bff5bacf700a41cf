#include "millrace/comm/placement.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <mutex>
#include <set>

#include "millrace/comm/signals.hpp"

namespace millrace {
namespace {

TEST(Placement, RanksOfAHostGetDisjointCores) {
  const int cores = usable_cores();
  for (int ranks = 1; ranks <= std::min(4, cores); ++ranks) {
    std::mutex mutex;
    std::multiset<int> used;
    run_thread_world(ranks, [&](World& world) {
      const Placement p = plan_placement(world, 0, 0);
      EXPECT_FALSE(p.shared_cores);
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
    EXPECT_TRUE(p.shared_cores);
    EXPECT_EQ(p.compute_threads, 1);
  });
}

TEST(Signals, AreRememberedUntilCleared) {
  install_stop_signals();
  EXPECT_EQ(stop_signal(), 0);
  std::raise(SIGUSR2);
  EXPECT_EQ(stop_signal(), SIGUSR2);
  clear_stop_signal();
  EXPECT_EQ(stop_signal(), 0);
}

}  // namespace
}  // namespace millrace
