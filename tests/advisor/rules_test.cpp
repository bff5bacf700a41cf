#include <gtest/gtest.h>

#include "advisor/metrics_samples.hpp"

namespace millrace {
namespace rules_test {

TEST(Rules, EveryRuleAppliesSomewhereAndHasEvidence) {
  for (const Rule& rule : rules()) {
    ASSERT_NE(rule.evidence, nullptr) << rule.key;
    int applies = 0;
    for (const BottleneckMetrics& e : all_kinds())
      for (const std::string& to : rule.to(e)) {
        ++applies;
        EXPECT_FALSE(to.empty() || rule.from(e).empty()) << rule.key;
        EXPECT_GT(rule.evidence(e).size(), 8u) << rule.key;
        EXPECT_TRUE(!rule.gain || rule.gain(e) > 1) << rule.key;
      }
    EXPECT_GT(applies, 0) << rule.key << " applies nowhere";
  }
}

TEST(Rules, DistinguishesDecodingFromReading) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = r.loader.wait_seconds = 1;
    r.step_times.mean = 0.020;
    r.loader.read_seconds = 4;
    r.loader.decoded.seconds = 3;
  }
  ResolvedConfig packed = plain();
  packed.input.chunked = true;
  packed.input.codec = "gzip";
  packed.input.shuffle = "block";
  std::string said = verdict(bottleneck_metrics_of(a, packed));
  EXPECT_NE(said.find("(decoding is 75 % of the loader's work, reading 25 %)"), said.npos) << said;
  EXPECT_NE(said.find("worth a trial: pack gzip -> decoded"), said.npos) << said;
  EXPECT_EQ(said.find("data.cache"), said.npos) << "cached files take as long to decode: " << said;
  for (RankAccount& r : a.ranks) r.loader.decoded.seconds = 1;
  said = verdict(bottleneck_metrics_of(a, packed));
  EXPECT_NE(said.find("reading 75 %"), said.npos) << said;
  EXPECT_NE(said.find("data.cache none -> memory"), said.npos) << said;
  EXPECT_EQ(said.find("pack gzip"), said.npos) << said;
}

TEST(Rules, BlockShuffleIsTriedForSmallSamples) {
  BottleneckMetrics e = starved();
  e.config.input.sample_bytes = 3072;
  EXPECT_TRUE(tries(changes_to_try(e), "data.shuffle", "block"));
  e.config.input.sample_bytes = 1 << 20;
  EXPECT_FALSE(tries(changes_to_try(e), "data.shuffle", "block"));
}

TEST(Rules, FastLoadersAreNotBlamedForWaits) {
  BottleneckMetrics e = starved();
  e.probed = false;
  e.run.steps = 100;
  e.config.input.reader = "uring";
  e.config.input.cache = "none";
  e.config.input.shuffle = "global";
  e.config.input.sample_bytes = 3072;
  const auto speaks_of = [&](const char* key) { return verdict(e).find(key) != std::string::npos; };
  EXPECT_TRUE(speaks_of("data.cache") && speaks_of("data.reader") && speaks_of("data.shuffle")) << verdict(e);
  e.input.loader_rate = 30 * e.run.batch / e.without.input;
  EXPECT_FALSE(speaks_of("data.cache") || speaks_of("data.reader") || speaks_of("data.shuffle")) << verdict(e);
  EXPECT_EQ(verdict(e).find("input-bound: "), 0u) << verdict(e);
}

TEST(Rules, SlowDecodingSuggestsNoOtherReader) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = r.loader.wait_seconds = 1;
    r.step_times.mean = 0.020;
    r.loader.read_seconds = 4;
    r.loader.decoded.seconds = 3.8;
  }
  ResolvedConfig s = plain();
  s.input.codec = "JPEG or PNG";
  s.input.workers = 2 * s.machine.cores;
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, s)).find("data.reader"), std::string::npos)
      << verdict(bottleneck_metrics_of(a, s));
  for (RankAccount& r : a.ranks) r.loader.decoded.seconds = 0.2;
  EXPECT_NE(verdict(bottleneck_metrics_of(a, s)).find("data.reader"), std::string::npos)
      << verdict(bottleneck_metrics_of(a, s));
}

TEST(Rules, SlowCopiesSuggestSmallerValues) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::copy) = 1;
    r.step_times.mean = 0.020;
  }
  a.ranks[0].loader.copy_seconds = 2;
  a.ranks[0].loader.copied_bytes = 5'000'000'000;
  ResolvedConfig gpu = plain();
  gpu.machine.gpu = true;
  gpu.input.value_type = "f32";
  gpu.input.value_bytes = 4;
  const auto found = findings(bottleneck_metrics_of(a, gpu));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(int(found[0].bound), int(Bound::copy));
  EXPECT_NE(found[0].evidence.find("50 % of the time is spent waiting for copies to the device, 10.00 ms per step; a "
                                   "single copy reaches 2.50 GB/s; 31.25 KiB per rank"),
            std::string::npos)
      << found[0].evidence;
  EXPECT_NEAR(found[0].gain, 2, 1e-9);
  EXPECT_TRUE(found[0].at_most);
  gpu.input.value_bytes = 1;
  EXPECT_TRUE(findings(bottleneck_metrics_of(a, gpu)).empty());
}

TEST(Rules, LimitedPcieLinkIsMentionedWhenCopiesAreSlow) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::copy) = 1;
    r.step_times.mean = 0.020;
  }
  DeviceHealthStats& h = a.ranks[1].health;
  h.pcie_generation = h.top_pcie_generation = 5;
  h.pcie_lanes = 4;
  h.top_pcie_lanes = 16;
  ResolvedConfig gpu = plain();
  gpu.machine.gpu = true;
  std::string said = verdict(bottleneck_metrics_of(a, gpu));
  EXPECT_NE(said.find("the GPU's PCIe link generation 5 x4 -> generation 5 x16"), said.npos) << said;
  h.pcie_lanes = 16;
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, gpu)).find("GPU's PCIe link"), said.npos);
}

TEST(Rules, ContendedCoresSuggestFewerThreads) {
  BottleneckMetrics e;
  e.probed = true;
  e.config.machine.ranks = 1;
  e.times.step = e.without.input = e.without.communication = 0.01;
  e.config.machine.cores = e.config.machine.threads = 8;
  const auto tried = [&](const char* threads) { return tries(changes_to_try(e), "run.threads", threads); };
  EXPECT_FALSE(tried("4") || tried("1"));
  e.machine.contention = {8, 2, 0};
  EXPECT_TRUE(tried("4") && tried("1"));
  e.config.machine.threads = 2;
  EXPECT_TRUE(tried("1") && !tried("4"));
  e.probed = false;
  e.run.steps = 100;
  EXPECT_NE(verdict(e).find("worth a trial: run.threads 2 -> 1"), std::string::npos) << verdict(e);
  e.config.machine.threads = 1;
  e.probed = true;
  EXPECT_FALSE(tried("1") || tried("0"));
}

TEST(Rules, UnusedMemorySuggestsLargerBatches) {
  BottleneckMetrics e = starved();
  e.config.machine.gpu = true;
  e.without.input = e.without.communication = e.times.step;
  e.memory.planned = 1e9;
  e.memory.limit = 80e9;
  e.config.training.global_batch = 64;
  EXPECT_TRUE(tries(changes_to_try(e), "train.global_batch", "256"));
  e.memory.planned = 30e9;
  EXPECT_FALSE(tries(changes_to_try(e), "train.global_batch", "256"));
}

TEST(Rules, SlowOptimizerSuggestsShardingOrLargerBatches) {
  BottleneckMetrics e = starved();
  e.without.input = e.without.communication = e.times.step;  // 20 ms
  e.times.optimizer = 0.003;
  e.config.training.global_batch = 64;
  EXPECT_TRUE(tries(changes_to_try(e), "optim.zero", "1"));
  EXPECT_FALSE(tries(changes_to_try(e), "train.global_batch", "256"));
  e.config.training.zero = true;
  EXPECT_FALSE(tries(changes_to_try(e), "optim.zero", "1")) << "each rank updates a shard already";
  e.config.training.zero = false;
  e.config.machine.ranks = 1;
  e.times.optimizer = 0.009;
  EXPECT_FALSE(tries(changes_to_try(e), "optim.zero", "1")) << "a single rank has nothing to share";
  const auto changes = changes_to_try(e);
  ASSERT_TRUE(tries(changes, "train.global_batch", "256"));
  EXPECT_NE(changes.back().evidence.find("the optimizer takes 9.00 ms of each step"), std::string::npos);
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::backward) -= 0.2;
    of(r, Phase::optimizer) += 0.2;
  }
  EXPECT_NE(
      verdict(bottleneck_metrics_of(a, plain())).find("worth a trial: optim.zero 0 -> 1 (the optimizer takes 2.00 ms"),
      std::string::npos)
      << verdict(bottleneck_metrics_of(a, plain()));
}

TEST(Rules, OtherWorkOnTheCoresIsMentioned) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    r.process.cores = "0-3";
    r.process.cores_busy_seconds = 4.3;
    r.process.cpu_seconds = 4.2;
    r.process.stolen_seconds = 0;
  }
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, plain())).find("nothing worth changing"), 0u);
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, plain())).find("other work"), std::string::npos);
  a.ranks[1].process.cpu_seconds = 2.1;
  a.ranks[1].process.stolen_seconds = 0.11;
  const std::string said = verdict(bottleneck_metrics_of(a, plain()));
  EXPECT_EQ(said.find("compute-bound: "), 0u) << said;
  for (const char* part :
       {"; other work occupies 2.1 of a rank's 4 cores. no configuration key is known to help\n",
        "worth a trial: other work on the host 2.1 of 4 cores of a rank -> none (srun --exclusive) (other processes "
        "used 2.0 of them on average, other virtual machines 0.1)"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST(Rules, CheckpointIntervalsInSeveralUnitsAreExtendedAlike) {
  BottleneckMetrics e;
  e.times.step = 0.01;
  e.without.input = e.without.communication = 0.01;
  e.times.checkpoint = 0.02;
  e.run.steps = 100;
  e.run.checkpoints = 20;
  e.config.training.checkpoint_every = "90s";
  const auto seconds = findings(e);
  e.config.training.checkpoint_every = "1m30s";
  const auto both = findings(e);
  ASSERT_EQ(seconds.size(), 1u);
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].advice.substr(both[0].advice.find("->")), seconds[0].advice.substr(seconds[0].advice.find("->")));
}

TEST(Rules, NeededCheckpointsAreNotCountedAsSavings) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::checkpoint) = 1;
    r.checkpoints = 100;
    r.needed_checkpoints = 50;
  }
  auto found = findings(bottleneck_metrics_of(a, plain()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].advice, "checkpoint.every 1 -> 25");
  EXPECT_NEAR(found[0].gain, 1 / (1 - 0.25 * 0.96), 1e-9);  // 2 of the 50 other checkpoints remain
  EXPECT_NE(found[0].evidence.find(", 50 of them needed: the best so far or the last"), std::string::npos)
      << found[0].evidence;
  for (RankAccount& r : a.ranks) r.checkpoints = 50;
  EXPECT_TRUE(findings(bottleneck_metrics_of(a, plain())).empty());
  EXPECT_EQ(
      verdict(bottleneck_metrics_of(a, plain()))
          .find(
              "checkpoint-bound: 50 % of the time is spent writing checkpoints. no configuration key is known to help"),
      0u);
}

TEST(Rules, FrequentCheckpointsAreStatedWithTheGainOfRarerOnes) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::checkpoint) = 1;
    r.checkpoints = 100;
  }
  const auto found = findings(bottleneck_metrics_of(a, plain()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].advice, "checkpoint.every 1 -> 50");
  EXPECT_FALSE(found[0].at_most);
  EXPECT_NEAR(found[0].gain, 1 / (1 - 0.5 * 0.98), 1e-9);
  EXPECT_NE(found[0].evidence.find("100 checkpoints of 10.0 ms each"), std::string::npos) << found[0].evidence;
}

TEST(Rules, EvaluationsThatTheRunDependsOnAreNotSwitchedOff) {
  BottleneckMetrics e;
  e.times.step = e.without.input = e.without.communication = 0.01;
  e.times.evaluation = 0.02;
  e.run.steps = 100;
  e.run.evaluations = 5;
  ASSERT_EQ(findings(e).size(), 1u);
  EXPECT_EQ(findings(e)[0].advice, "train.evaluate on -> off");
  e.config.training.needs_evaluations = true;  // train.patience would be refused
  EXPECT_TRUE(findings(e).empty());
}

}  // namespace rules_test
}  // namespace millrace
