#include <gtest/gtest.h>

#include "advisor/metrics_samples.hpp"

namespace millrace {
namespace straggler_test {

TEST(Straggler, ProbedRanksOfUnequalSpeedAreImbalanced) {
  std::vector<RankAccount> ranks(2);
  for (RankAccount& r : ranks) {
    r.steps = 10;
    of(r, Phase::forward) = 0.1;
  }
  of(ranks[1], Phase::backward) = 0.2;
  of(ranks[1], Phase::data_wait) = 0.05;
  BottleneckMetrics e;
  e.probed = true;
  e.config.machine.ranks = 2;
  e.times.step = 0.035;
  e.without.input = e.without.communication = 0.03;
  e.set_straggler(ranks);
  EXPECT_EQ(e.straggler.rank, 1);
  EXPECT_NEAR(e.times.imbalance, 0.02, 1e-12) << "its waits for samples count as input";
  EXPECT_NEAR(e.times.balance_gain_seconds, 0.03 - 0.015, 1e-12);
  EXPECT_NEAR(e.share(Bound::imbalance), 0.02 / 0.035, 1e-12);
  // Only a trial includes the cost of smaller micro-batches.
  const auto changes = changes_to_try(e);
  const auto change =
      std::find_if(changes.begin(), changes.end(), [](const Change& c) { return c.key == "train.balance"; });
  ASSERT_NE(change, changes.end());
  const auto found = findings(e, {{*change, 0.025, 0.035, ""}});
  const auto advised = std::find_if(found.begin(), found.end(),
                                    [](const Finding& f) { return f.advice == "train.balance even -> auto"; });
  ASSERT_NE(advised, found.end());
  EXPECT_NEAR(advised->gain, 1.4, 1e-12);
  EXPECT_FALSE(advised->at_most);
  EXPECT_EQ(std::count_if(found.begin(), found.end(),
                          [](const Finding& f) { return f.advice.find("balance") != f.advice.npos; }),
            1);
}

TEST(Straggler, StragglerIsNamedWithHostAndCause) {
  Account a = healthy();
  RankAccount &fast = a.ranks[0], &slow = a.ranks[1];
  of(slow, Phase::backward) += 1;
  of(fast, Phase::communication) += 1;
  fast.step_times.mean = slow.step_times.mean = 0.020;
  slow.process.preempted = 2000;
  fast.process.preempted = 10;
  const auto found = findings(bottleneck_metrics_of(a, plain()));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(int(found[0].bound), int(Bound::imbalance));
  EXPECT_EQ(found[0].advice, "train.balance even -> auto");
  EXPECT_NEAR(found[0].gain, 20 / (20 - 19.6 + 2 / (1 / 19.6 + 1 / 9.6)), 1e-9)
      << "both ranks would end at the same time";
  EXPECT_TRUE(found[0].at_most && !found[0].whole_bound) << "only a trial includes the cost of smaller micro-batches";
  EXPECT_NE(found[0].evidence.find("preempted 1818 times per second, the others 9"), std::string::npos)
      << found[0].evidence;
  EXPECT_NEAR(found[1].gain, 2, 1e-9);  // one of two seconds
  EXPECT_TRUE(found[1].at_most && found[1].whole_bound);
  EXPECT_NE(found[1].advice.find("rank 1 on node2 -> "), std::string::npos) << found[1].advice;
  ResolvedConfig balanced = plain();
  balanced.training.balanced = true;
  EXPECT_NE(findings(bottleneck_metrics_of(a, balanced))[0].advice.find("rank 1 on node2 -> "), std::string::npos);
  slow.health.throttle_reasons = {{"heat", 0.3}, {"power cap", 0.9}};
  fast.health.throttle_reasons = {{"power cap", 0.8}};
  EXPECT_NE(find_straggler(a.ranks).cause.find("throttled 30 % of the time, the others' 0 %: heat"), std::string::npos)
      << find_straggler(a.ranks).cause;
  slow.health.throttle_reasons = fast.health.throttle_reasons = {{"power cap", 0.9}};
  slow.process.cores = "2-3";  // 2.2 core-seconds
  slow.process.cores_busy_seconds = 2.5;
  slow.process.cpu_seconds = 1.5;
  fast.process.cores = "0-1";
  fast.process.cores_busy_seconds = 2;
  fast.process.cpu_seconds = 1.9;
  EXPECT_NE(find_straggler(a.ranks).cause.find("took 45 % of its cores, 5 % of the others': a noisy neighbour"),
            std::string::npos)
      << "all clocks are throttled alike";
  slow.process.throttled_seconds = 0.9;
  EXPECT_NE(find_straggler(a.ranks).cause.find("a CPU quota"), std::string::npos) << find_straggler(a.ranks).cause;
  of(slow, Phase::data_wait) = 1.5;
  of(fast, Phase::communication) += 1.5;
  EXPECT_NE(find_straggler(a.ranks).cause.find("a CPU quota"), std::string::npos) << "it throttled the loader too";
  RankAccount late = slow;  // it also waited 2 s for its first batch
  late.loader.wait_seconds = late.loader.first_batch_seconds = 2;
  of(late, Phase::data_wait) += 2;
  EXPECT_NEAR(find_straggler({fast, late}).seconds, find_straggler(a.ranks).seconds, 1e-9);
  slow.process.throttled_seconds = 0;
  slow.process.cores_busy_seconds = 3.3;
  EXPECT_NE(find_straggler(a.ranks).cause.find("a noisy neighbour"), std::string::npos)
      << find_straggler(a.ranks).cause;
  of(slow, Phase::data_wait) = 3;
  EXPECT_NE(find_straggler(a.ranks).cause.find("a slow disk"), std::string::npos) << find_straggler(a.ranks).cause;
  EXPECT_EQ(find_straggler(healthy().ranks).rank, -1);
}

TEST(Straggler, WrongBindingIsStatedFirstWhateverTheBound) {
  Account even = healthy();
  Account uneven = healthy(), waiting = healthy();
  of(uneven.ranks[1], Phase::backward) += 1;
  of(uneven.ranks[0], Phase::communication) += 1;
  for (RankAccount& r : uneven.ranks) r.step_times.mean = 0.020;
  for (RankAccount& r : waiting.ranks) {
    of(r, Phase::communication) += 1;
    r.step_times.mean = 0.020;
    r.sums = {{0, 100, 100u << 20, 0, 1, 1}};
  }
  ResolvedConfig wrong = plain();
  wrong.machine.placement_problem = "ranks 0 and 1 of one host are bound to different cores that overlap";
  EXPECT_EQ(verdict(bottleneck_metrics_of(even, plain())).find("nothing worth changing"), 0u);
  for (const auto& [account, bound] :
       {std::pair(even, "compute-bound: "), {uneven, "imbalanced: "}, {waiting, "communication-bound: "}}) {
    const std::string said = verdict(bottleneck_metrics_of(account, wrong)), first = said.substr(0, said.find('\n'));
    EXPECT_EQ(first.find(bound), 0u) << said;
    EXPECT_NE(first.find(wrong.machine.placement_problem), std::string::npos) << said;
    EXPECT_EQ(said.find("train.balance"), std::string::npos) << said;
  }
}

}  // namespace straggler_test
}  // namespace millrace
