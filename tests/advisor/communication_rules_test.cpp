#include <gtest/gtest.h>

#include "advisor/metrics_samples.hpp"

namespace millrace {
namespace communication_rules_test {

TEST(CommunicationRules, BucketSizesThatSplitTheGradientAsBeforeAreNotAdvised) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 1;
    r.step_times.mean = 0.020;
    r.sums = {{0, 100, 100u << 20, 0, 1, 1}};
    r.pace.ready = {{1 << 20, 1e-3}};
  }
  ResolvedConfig one = plain();
  one.communication.bucket_size = 8 << 20;
  one.communication.grad_dtype = "bf16";
  EXPECT_FALSE(tries(changes_to_try(bottleneck_metrics_of(a, one)), "comm.bucket_size", "2MiB"));
  EXPECT_FALSE(tries(changes_to_try(bottleneck_metrics_of(a, one)), "comm.bucket_size", "32MiB"));
  for (RankAccount& r : a.ranks) r.pace.ready = {{40 << 20, 1e-3}};
  EXPECT_TRUE(tries(changes_to_try(bottleneck_metrics_of(a, one)), "comm.bucket_size", "2MiB"));
  EXPECT_TRUE(tries(changes_to_try(bottleneck_metrics_of(a, one)), "comm.bucket_size", "32MiB"));
}

TEST(CommunicationRules, SlowNetworkLinkIsMentioned) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 1;
    r.step_times.mean = 0.020;
    r.network_link = {"eth7", 1.25e9};
    r.sums = {{0, 100, 100u << 20, 0.1, 1, 0.9}, {1, 100, 400, 0, 5, 0}};
  }
  std::string said = verdict(bottleneck_metrics_of(a, plain()));
  EXPECT_NE(
      said.find("mpirun as launched -> --mca btl_tcp_if_include eth7 (all-reduces between hosts reach 0.105 GB/s; "
                "eth7 is rated at 1.25 GB/s)"),
      said.npos)
      << said;
  EXPECT_NE(
      said.find("worth a trial: train.global_batch 64 -> 256 (one all-reduce per 64 samples; fewer, larger steps"),
      said.npos)
      << said;
  auto halves = a;
  for (RankAccount& r : halves.ranks) {
    r.sums[0].op = CollectiveOp::reduce_scatter;
    r.sums.push_back(r.sums[0]);
    r.sums.back().op = CollectiveOp::all_gather;
  }
  EXPECT_NEAR(bottleneck_metrics_of(halves, plain()).communication.link_rate,
              bottleneck_metrics_of(a, plain()).communication.link_rate / 2, 1)
      << "together they send what an all-reduce sends";
  a.ranks[0].sums[0].busy = 0.2;  // 0.5 GB/s
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, plain())).find("btl_tcp"), said.npos);
  a.ranks[0].sums[0].busy = 1;
  a.ranks[1].host = a.ranks[0].host;
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, plain())).find("btl_tcp"), said.npos) << "a single host does not use it";
}

TEST(CommunicationRules, OversubscriptionIsStatedBeforeCommunicationKeys) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 0.5;
    r.step_times.mean = 0.015;
    r.sums = {{0, 100, 100ull << 20, 0.1, 0.5, 0.5}};
  }
  ResolvedConfig shared = plain();
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, shared)).find("more ranks than cores"), std::string::npos);
  shared.machine.oversubscribed = true;
  const std::string said = verdict(bottleneck_metrics_of(a, shared));
  const std::string first = said.substr(0, said.find('\n'));
  EXPECT_NE(first.find("more ranks than cores, so each waits while another computes. ranks 2 -> as many as there are "
                       "cores, or comm.grad_dtype"),
            std::string::npos)
      << said;
}

TEST(CommunicationRules, WaitsForALateRankAreNotBlamedOnCommunicationKeys) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 0.2;
    r.step_times.mean = 0.012;
    r.sums = {{0, 100, 100ull << 20, 0.15, 0.05, 0.05}};
  }
  std::string said = verdict(bottleneck_metrics_of(a, plain()));
  EXPECT_EQ(said.find("nothing worth changing: "), 0u) << said;
  EXPECT_NE(said.find("17 % of the time is spent waiting for all-reduces (12.00 ms per step with them, 10.00 ms "
                      "without; 1.50 ms of it waiting for the last rank)"),
            said.npos)
      << said;
  EXPECT_EQ(said.find("at most"), said.npos) << said;
  for (RankAccount& r : a.ranks) r.sums = {{0, 100, 100ull << 20, 0.05, 0.15, 0.15}};
  said = verdict(bottleneck_metrics_of(a, plain()));
  EXPECT_EQ(said.find("communication-bound: "), 0u) << said;
  EXPECT_NE(said.find("comm.grad_dtype none -> bf16, or comm.bucket_size"), said.npos) << said;
  EXPECT_NE(said.find(": at most 1.14x"), said.npos) << said;
  ResolvedConfig gpu = plain();
  gpu.machine.gpu = true;
  for (RankAccount& r : a.ranks) r.sums = {{0, 100, 100ull << 20, 0.15, 0.05, 0.05}};
  EXPECT_EQ(bottleneck_metrics_of(a, gpu).times.late_rank_wait, 0) << "there, an all-reduce begins with the first rank";
}

TEST(CommunicationRules, UnusedNvlinksAreMentioned) {
  Account a = healthy();
  a.ranks[1].host = a.ranks[0].host;
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 1;
    r.step_times.mean = 0.020;
    r.health.nvlinks = 18;
    r.health.nvlink_rate = 450e9;
    r.sums = {{0, 100, 100ull * (32 << 20), 0.1, 0.5, 0.9}};  // 6.7 GB/s
  }
  ResolvedConfig gpu = plain();
  gpu.machine.gpu = true;
  const std::string said = verdict(bottleneck_metrics_of(a, gpu));
  EXPECT_NE(said.find("mpirun as launched -> without NCCL_P2P_DISABLE"), said.npos) << said;
  EXPECT_NE(said.find("all-reduces between GPUs reach 6.711 GB/s; 18 NVLinks are rated at 450.00 GB/s"), said.npos)
      << said;
  const auto pointed_at = [&] { return verdict(bottleneck_metrics_of(a, gpu)).find("NCCL_P2P") != std::string::npos; };
  a.ranks[0].sums[0].busy = 0.02;  // 168 GB/s
  EXPECT_FALSE(pointed_at());
  a.ranks[0].sums = {{0, 100, 100ull << 20, 0.1, 0.5, 0.9}};
  EXPECT_FALSE(pointed_at()) << "a megabyte is mostly latency";
  a.ranks[0].sums = {{0, 100, 100ull * (32 << 20), 0.1, 0.5, 0.9}};
  a.ranks[0].health.nvlinks = 0;
  EXPECT_FALSE(pointed_at());
}

}  // namespace communication_rules_test
}  // namespace millrace
