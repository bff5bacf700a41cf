#include "millrace/advisor/rules/verdict.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/advisor/rules/straggler.hpp"

namespace millrace {
namespace {

// Half of the step waits for samples, a tenth for sums.
BottleneckMetrics starved() {
  BottleneckMetrics e;
  e.step = 0.020, e.without_input = 0.010, e.without_sums = 0.008;
  e.batch = 128, e.loader_rate = 6400, e.ranks = 2, e.workers = 1, e.cores = 4;
  e.precision = "fp32", e.grad_dtype = "none", e.reader = "direct", e.bucket = 4 << 20, e.prefetch = 4;
  e.chunk_cache = 256 << 20, e.shuffle = "global", e.probed = true;
  return e;
}

bool tries(const std::vector<Change>& changes, const std::string& key, const std::string& to) {
  return std::any_of(changes.begin(), changes.end(), [&](const Change& c) { return c.key == key && c.to == to; });
}

TEST(Verdict, SharesSumToOneWhateverTheNoise) {
  BottleneckMetrics e = starved();
  EXPECT_NEAR(e.share(Bound::input), 0.5, 1e-12);
  EXPECT_NEAR(e.share(Bound::sums), 0.1, 1e-12);
  for (const double without_input : {0.001, 0.015, 0.03})
    for (const double without_sums : {0.0005, 0.015, 0.04}) {
      e.without_input = without_input, e.without_sums = without_sums;
      EXPECT_NEAR(e.share(Bound::input) + e.share(Bound::sums) + e.share(Bound::compute), 1, 1e-12);
      for (const Bound b : {Bound::input, Bound::sums, Bound::compute}) EXPECT_GE(e.share(b), 0);
    }
}

TEST(Verdict, OnlyWhatTakesAShareIsTriedAndOnlyWhereItApplies) {
  BottleneckMetrics e = starved();
  auto changes = changes_to_try(e);
  EXPECT_TRUE(tries(changes, "data.workers", "2") && tries(changes, "data.workers", "4"));
  EXPECT_TRUE(tries(changes, "data.reader", "mmap"));
  EXPECT_FALSE(tries(changes, "data.reader", "direct")) << "it is so already";
  EXPECT_FALSE(tries(changes, "data.shuffle", "block")) << "the data is not chunked";
  EXPECT_TRUE(tries(changes, "comm.grad_dtype", "bf16"));
  e.chunked = true;
  changes = changes_to_try(e);
  EXPECT_FALSE(tries(changes, "data.reader", "mmap"));
  EXPECT_TRUE(tries(changes, "data.shuffle", "block") && tries(changes, "data.chunk_cache", "1024MiB"));
  e.without_input = e.step, e.without_sums = e.step;
  for (const Change& c : changes_to_try(e)) EXPECT_EQ(int(c.bound), int(Bound::compute)) << c.key;
  e.ranks = 1, e.without_sums = 0.001;
  EXPECT_FALSE(tries(changes_to_try(e), "comm.grad_dtype", "bf16")) << "one rank sums with nobody";
}

TEST(Verdict, TheLargestMeasuredGainComesFirstWithItsEvidence) {
  const BottleneckMetrics e = starved();
  const Change two{Bound::input, "data.workers", "1", "2", ""}, four{Bound::input, "data.workers", "1", "4", ""},
      grad_dtype{Bound::sums, "comm.grad_dtype", "none", "bf16", "coarser"};
  const std::vector<Trial> trials{{grad_dtype, 0.019, 0.020, ""}, {two, 0.0125, 0.020, ""}, {four, 0.0123, 0.020, ""}};
  const auto found = findings(e, trials);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].advice, "data.workers 1 -> 2") << "four workers give hardly more";
  EXPECT_NEAR(found[0].gain, 1.6, 1e-12);
  EXPECT_EQ(found[1].caution, "coarser");
  for (const Finding& f : found) EXPECT_FALSE(f.evidence.empty());
  const std::string text = verdict(e, trials);
  EXPECT_EQ(text.find("input-bound: 50 % of the step waits for samples; the loader alone delivers 6.4 k samples/s, the "
                      "step could take 12.8 k. data.workers 1 -> 2 gives 1.60x\n"),
            0u)
      << text;
}

TEST(Verdict, NoiseAndFailuresAreNoFindings) {
  const BottleneckMetrics e = starved();
  const Change two{Bound::input, "data.workers", "1", "2", ""}, mmap{Bound::input, "data.reader", "direct", "mmap", ""};
  const std::vector<Trial> trials{{two, 0.0195, 0.020, ""}, {mmap, 0, 0, "not contiguous"}};
  EXPECT_TRUE(findings(e, trials).empty());
  const std::string text = verdict(e, trials);
  EXPECT_EQ(text.find("input-bound: "), 0u) << text;
  EXPECT_NE(text.find("no change that was tried helps"), text.npos) << text;
  EXPECT_NE(text.find("data.reader -> mmap: not tried, not contiguous"), text.npos) << text;
  for (const int faster : {3, 4}) {  // of five turns
    const std::vector<Trial> again{{two, 0.015, 0.020, "", 5, faster}};
    EXPECT_EQ(findings(e, again).size(), faster > 3 ? 1u : 0u);
    EXPECT_EQ(verdict(e, again).find("1.33x; noise: faster in 3 of 5 turns\n") != text.npos, faster == 3);
  }
}

TEST(Verdict, AHealthyRunHasNothingWorthChanging) {
  BottleneckMetrics e = starved();
  e.without_input = 0.0199, e.without_sums = 0.0198;
  EXPECT_EQ(verdict(e).find("nothing worth changing: 99 % of the step computes"), 0u) << verdict(e);
}

// So that each rule applies somewhere.
std::vector<BottleneckMetrics> all_kinds() {
  BottleneckMetrics e;
  e.step = 0.001, e.without_input = 0.0008, e.without_sums = 0.0006, e.imbalance = 0.0001, e.steps = 100;
  e.checkpoint = 0.0005, e.evaluation = 0.0004, e.evaluations = 3, e.host = 0.0001, e.batch = 64, e.loader_rate = 1000;
  e.ranks = 2, e.workers = 1, e.cores = 2, e.threads = 8, e.prefetch = 4, e.depth = 3, e.chunk_cache = 1 << 20;
  e.checkpoints = 9, e.checkpoint_every = "1e", e.wall = 100, e.startup = 50, e.clock = 0.7, e.slowed = "power cap";
  e.precision = "fp32", e.grad_dtype = "none", e.reader = "direct", e.cache = "none", e.bucket = 1 << 20, e.half = true;
  e.overlap = false, e.misplaced = "bound to one core", e.oversubscribed = true, e.global_batch = 64,
  e.sample_bytes = 784;
  e.slow = {1, "node7", "a slow disk", 0.0001, 0}, e.uneven = 0.00005;
  e.optimizer = 0.0004, e.taken = {2, 0.5, 0.1};
  BottleneckMetrics chunked = e;
  chunked.misplaced.clear();
  chunked.chunked = true, chunked.shuffle = "global", chunked.decodes = 5;
  chunked.stored = "zstd", chunked.decoding = 0.8;
  BottleneckMetrics launched = e;
  launched.shuffle = "global", launched.gpu = true, launched.graph = false, launched.accumulation = 2,
  launched.micro_batch = 32;
  launched.copy = 0.0001, launched.of_values = "f32", launched.value_bytes = 4;
  launched.fusion = 0, launched.most_fusion = 2, launched.link = {"eth0", 1.25e9}, launched.link_rate = 1e8;
  launched.pcie = "generation 3 x4", launched.top_pcie = "generation 4 x16";
  return {e, chunked, launched};
}

TEST(Verdict, EachRuleAppliesSomewhereAndHasEvidenceWhereItDoes) {
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

TEST(Verdict, SharesOfAllBoundsSumToOneAndTheStartIsOfTheRun) {
  for (const BottleneckMetrics& e : all_kinds()) {
    double sum = 0;
    for (int b = 0; b < bound_count; ++b)
      if (Bound(b) != Bound::startup) sum += e.share(Bound(b));
    EXPECT_NEAR(sum, 1, 1e-12);
    EXPECT_NEAR(e.share(Bound::startup), 0.5, 1e-12);
    EXPECT_NEAR(e.share(Bound::checkpoint), 0.0005 / 0.0019, 1e-12);
  }
}

// 100 steps of 10 ms on each of two ranks, of which 8 compute and 1 waits for sums.
Account healthy() {
  Account a;
  for (const char* host : {"node1", "node2"}) {
    RankAccount r;
    r.host = host, r.steps = 100, r.samples = 6400, r.wall_seconds = 1.1, r.step_times.mean = 0.010;
    r.cores = r.threads = 4;
    r.loader = {.batches = 100, .samples = 3200, .bytes_read = 3200000, .read_seconds = 0.2, .workers = 2};
    r.seconds[std::size_t(Phase::startup)] = 0.1;
    r.seconds[std::size_t(Phase::forward)] = r.seconds[std::size_t(Phase::backward)] = 0.48;
    r.seconds[std::size_t(Phase::communication)] = r.seconds[std::size_t(Phase::other)] = 0.02;
    a.ranks.push_back(r);
  }
  return a;
}
ResolvedConfig plain() {
  ResolvedConfig s;
  s.ranks = 2, s.workers = 2, s.cores = s.threads = 4, s.prefetch = 4, s.reader = "direct", s.precision = "fp32";
  s.grad_dtype = s.cache = "none", s.checkpoint_every = "1", s.global_batch = 64, s.micro_batch = 32;
  s.bucket = 8 << 20, s.sample_bytes = 1000;
  return s;
}
double& of(RankAccount& r, Phase p) { return r.seconds[std::size_t(p)]; }

TEST(Verdict, OfAHealthyAccountThereIsNothingWorthChanging) {
  EXPECT_EQ(verdict(bottleneck_metrics_of(healthy(), plain())).find("nothing worth changing: "), 0u)
      << verdict(bottleneck_metrics_of(healthy(), plain()));
  EXPECT_EQ(verdict(bottleneck_metrics_of({}, plain())), "") << "no step, no verdict";
}

TEST(Verdict, WithoutATrialAGainIsTheBoundOfTheTimeThatWasMeasured) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = r.loader.wait_seconds = 1, r.step_times.mean = 0.020;
    r.loader.read_seconds = 4;  // two workers of four seconds each for 3200 samples: 1600 a second
  }
  const auto found = findings(bottleneck_metrics_of(a, plain()));
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(found[0].at_most);
  EXPECT_NEAR(found[0].gain, 2, 1e-9);
  EXPECT_NE(found[0].evidence.find("50 % of the time waits for samples; the loader alone delivers 3.2 k samples/s, the "
                                   "step could take 6.4 k"),
            std::string::npos)
      << found[0].evidence;
  EXPECT_EQ(found[0].advice.find("data.workers 2 -> 5, or data.reader direct -> mmap"), 0u) << found[0].advice;
}

TEST(Verdict, DecodingAndReadingAreToldApart) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = r.loader.wait_seconds = 1, r.step_times.mean = 0.020;
    r.loader.read_seconds = 4, r.loader.decoded.seconds = 3;
  }
  ResolvedConfig packed = plain();
  packed.chunked = true, packed.stored = "gzip", packed.shuffle = "block";
  std::string said = verdict(bottleneck_metrics_of(a, packed));
  EXPECT_NE(said.find("(decoding is 75 % of its work, reading 25 %)"), said.npos) << said;
  EXPECT_NE(said.find("worth a trial: pack gzip -> as they are"), said.npos) << said;
  EXPECT_EQ(said.find("data.cache"), said.npos) << "nearer files are decoded as slowly: " << said;
  for (RankAccount& r : a.ranks) r.loader.decoded.seconds = 1;
  said = verdict(bottleneck_metrics_of(a, packed));
  EXPECT_NE(said.find("reading 75 %"), said.npos) << said;
  EXPECT_NE(said.find("data.cache none -> memory"), said.npos) << said;
  EXPECT_EQ(said.find("pack gzip"), said.npos) << said;
}

TEST(Verdict, SmallSamplesFromADiskAreBetterReadTogether) {
  BottleneckMetrics e = starved();
  e.sample_bytes = 3072;
  EXPECT_TRUE(tries(changes_to_try(e), "data.shuffle", "block"));
  e.sample_bytes = 1 << 20;
  EXPECT_FALSE(tries(changes_to_try(e), "data.shuffle", "block"));
}

TEST(Verdict, CopiesThatAStepWaitsForAreSmallerInFewerBytes) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) of(r, Phase::copy) = 1, r.step_times.mean = 0.020;
  a.ranks[0].loader.copy_seconds = 2, a.ranks[0].loader.copied_bytes = 5'000'000'000;
  ResolvedConfig gpu = plain();
  gpu.gpu = true, gpu.of_values = "f32", gpu.value_bytes = 4;
  const auto found = findings(bottleneck_metrics_of(a, gpu));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(int(found[0].bound), int(Bound::copy));
  EXPECT_NE(found[0].evidence.find("50 % of the time waits for copies to the device, 10.00 ms of a step; one by itself "
                                   "has 2.50 GB/s; 31.25 KiB a rank"),
            std::string::npos)
      << found[0].evidence;
  EXPECT_NEAR(found[0].gain, 2, 1e-9);
  EXPECT_TRUE(found[0].at_most);
  gpu.value_bytes = 1;
  EXPECT_TRUE(findings(bottleneck_metrics_of(a, gpu)).empty());
}

TEST(Verdict, WhatRanksAgreeOnAfterAStepIsNoWorkOfTheHost) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::other) = 0.6, r.step_times.mean = 0.016;
    r.pace.steps = 90, r.pace.meets = true, r.pace.meeting = 0.0055;
  }
  const BottleneckMetrics e = bottleneck_metrics_of(a, plain());
  EXPECT_NEAR(e.host, 0.0005, 1e-9);
  EXPECT_GE(e.late, 0.0055 - 1e-9);
  EXPECT_EQ(verdict(e).find("host-bound"), std::string::npos) << verdict(e);
  Account paused = a;  // the steps that meetings are known of had a pause, the others none
  for (RankAccount& r : paused.ranks) r.pace.meeting = 1, of(r, Phase::other) = 100;
  EXPECT_GE(bottleneck_metrics_of(paused, plain()).without_sums, 0);
  EXPECT_LE(bottleneck_metrics_of(paused, plain()).late, 0.016 + 1e-9);
  for (RankAccount& r : a.ranks) r.pace.meeting = 0;
  EXPECT_NE(verdict(bottleneck_metrics_of(a, plain())).find("host-bound"), std::string::npos);
}

TEST(Verdict, BucketsOfASizeThatCutsTheGradientAsBeforeAreNotAdvised) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 1, r.step_times.mean = 0.020;
    r.sums = {{0, 100, 100u << 20, 0, 1, 1}};
    r.pace.ready = {{1 << 20, 1e-3}};
  }
  ResolvedConfig one = plain();
  one.bucket = 8 << 20, one.grad_dtype = "bf16";
  EXPECT_FALSE(tries(changes_to_try(bottleneck_metrics_of(a, one)), "comm.bucket_size", "2MiB"));
  EXPECT_FALSE(tries(changes_to_try(bottleneck_metrics_of(a, one)), "comm.bucket_size", "32MiB"));
  for (RankAccount& r : a.ranks) r.pace.ready = {{40 << 20, 1e-3}};
  EXPECT_TRUE(tries(changes_to_try(bottleneck_metrics_of(a, one)), "comm.bucket_size", "2MiB"));
  EXPECT_TRUE(tries(changes_to_try(bottleneck_metrics_of(a, one)), "comm.bucket_size", "32MiB"));
}

TEST(Verdict, RarerCheckpointsOfTimesInSeveralUnitsAreAsRare) {
  BottleneckMetrics e;
  e.step = 0.01, e.without_input = e.without_sums = 0.01, e.checkpoint = 0.02, e.steps = 100, e.checkpoints = 20;
  e.checkpoint_every = "90s";
  const auto seconds = findings(e);
  e.checkpoint_every = "1m30s";
  const auto both = findings(e);
  ASSERT_EQ(seconds.size(), 1u);
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].advice.substr(both[0].advice.find("->")), seconds[0].advice.substr(seconds[0].advice.find("->")));
}

TEST(Verdict, ALinkThatGivesFarLessThanItIsMadeForIsPointedAt) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 1, r.step_times.mean = 0.020;
    r.network_link = {"eth7", 1.25e9};
    r.sums = {{0, 100, 100u << 20, 0.1, 1, 0.9}, {1, 100, 400, 0, 5, 0}};
  }
  std::string said = verdict(bottleneck_metrics_of(a, plain()));
  EXPECT_NE(
      said.find(
          "mpirun as it was started -> --mca btl_tcp_if_include eth7 (sums between hosts have 0.105 GB/s; eth7 is "
          "made for 1.25)"),
      said.npos)
      << said;
  EXPECT_NE(said.find("worth a trial: train.global_batch 64 -> 256 (a sum for each 64 samples; fewer, larger steps"),
            said.npos)
      << said;
  auto halves = a;
  for (RankAccount& r : halves.ranks) {
    r.sums[0].op = CollectiveOp::reduce_scatter;
    r.sums.push_back(r.sums[0]), r.sums.back().op = CollectiveOp::all_gather;
  }
  EXPECT_NEAR(bottleneck_metrics_of(halves, plain()).link_rate, bottleneck_metrics_of(a, plain()).link_rate / 2, 1)
      << "the two of them send what a sum sends";
  a.ranks[0].sums[0].busy = 0.2;  // 0.5 GB/s
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, plain())).find("btl_tcp"), said.npos);
  a.ranks[0].sums[0].busy = 1;
  a.ranks[1].host = a.ranks[0].host;
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, plain())).find("btl_tcp"), said.npos) << "it is not on the way";
}

TEST(Verdict, ProbedRanksThatComputeUnequallyAreImbalanced) {
  std::vector<RankAccount> ranks(2);
  for (RankAccount& r : ranks) r.steps = 10, of(r, Phase::forward) = 0.1;
  of(ranks[1], Phase::backward) = 0.2, of(ranks[1], Phase::data_wait) = 0.05;
  BottleneckMetrics e;
  e.probed = true, e.ranks = 2, e.step = 0.035, e.without_input = e.without_sums = 0.03;
  e.set_straggler(ranks);
  EXPECT_EQ(e.slow.rank, 1);
  EXPECT_NEAR(e.imbalance, 0.02, 1e-12) << "its waits for samples are the input's share";
  EXPECT_NEAR(e.uneven, 0.03 - 0.015, 1e-12);
  EXPECT_NEAR(e.share(Bound::imbalance), 0.02 / 0.035, 1e-12);
  // What smaller micro-batches cost is in a trial alone.
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

TEST(Verdict, WaitsForSamplesOfLoadersThatAreFastEnoughAreNotBlamedOnReading) {
  BottleneckMetrics e = starved();
  e.probed = false, e.reader = "uring", e.cache = "none", e.shuffle = "global", e.sample_bytes = 3072;
  const auto speaks_of = [&](const char* key) { return verdict(e).find(key) != std::string::npos; };
  EXPECT_TRUE(speaks_of("data.cache") && speaks_of("data.reader") && speaks_of("data.shuffle")) << verdict(e);
  e.loader_rate = 30 * e.batch / e.without_input;
  EXPECT_FALSE(speaks_of("data.cache") || speaks_of("data.reader") || speaks_of("data.shuffle")) << verdict(e);
  EXPECT_EQ(verdict(e).find("input-bound: "), 0u) << verdict(e);
}

TEST(Verdict, WhereOthersAreOnTheCoresFewerThreadsAreTried) {
  BottleneckMetrics e;
  e.probed = true, e.ranks = 1, e.step = e.without_input = e.without_sums = 0.01, e.cores = e.threads = 8;
  const auto tried = [&](const char* threads) { return tries(changes_to_try(e), "run.threads", threads); };
  EXPECT_FALSE(tried("4") || tried("1"));
  e.taken = {8, 2, 0};
  EXPECT_TRUE(tried("4") && tried("1"));
  e.threads = 2;
  EXPECT_TRUE(tried("1") && !tried("4"));
  e.probed = false;
  EXPECT_NE(verdict(e).find("worth a trial: run.threads 2 -> 1"), std::string::npos) << verdict(e);
  e.threads = 1, e.probed = true;
  EXPECT_FALSE(tried("1") || tried("0"));
}

TEST(Verdict, MoreRanksThanCoresAreNamedAheadOfTheWayOfSumming) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 0.5, r.step_times.mean = 0.015;
    r.sums = {{0, 100, 100ull << 20, 0.1, 0.5, 0.5}};
  }
  ResolvedConfig shared = plain();
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, shared)).find("more ranks than cores"), std::string::npos);
  shared.oversubscribed = true;
  const std::string said = verdict(bottleneck_metrics_of(a, shared));
  const std::string first = said.substr(0, said.find('\n'));
  EXPECT_NE(first.find("more ranks than cores, so each waits while another computes. ranks 2 -> as many as there are "
                       "cores, or comm.grad_dtype"),
            std::string::npos)
      << said;
}

TEST(Verdict, WhatSumsWaitForALateRankIsNotBlamedOnTheWayOfSumming) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 0.2, r.step_times.mean = 0.012;
    r.sums = {{0, 100, 100ull << 20, 0.15, 0.05, 0.05}};
  }
  std::string said = verdict(bottleneck_metrics_of(a, plain()));
  EXPECT_EQ(said.find("nothing worth changing: "), 0u) << said;
  EXPECT_NE(said.find("17 % of the time waits for sums over ranks (12.00 ms with them, 10.00 ms without; 1.50 ms until "
                      "the last rank was there)"),
            said.npos)
      << said;
  EXPECT_EQ(said.find("at most"), said.npos) << said;
  for (RankAccount& r : a.ranks) r.sums = {{0, 100, 100ull << 20, 0.05, 0.15, 0.15}};
  said = verdict(bottleneck_metrics_of(a, plain()));
  EXPECT_EQ(said.find("communication-bound: "), 0u) << said;
  EXPECT_NE(said.find("comm.grad_dtype none -> bf16, or comm.bucket_size"), said.npos) << said;
  EXPECT_NE(said.find(": at most 1.14x"), said.npos) << said;
  ResolvedConfig gpu = plain();
  gpu.gpu = true;
  for (RankAccount& r : a.ranks) r.sums = {{0, 100, 100ull << 20, 0.15, 0.05, 0.05}};
  EXPECT_EQ(bottleneck_metrics_of(a, gpu).late, 0) << "its sums begin with the first rank";
}

TEST(Verdict, WhatWasTriedStandsBesideWhatSpokeForIt) {
  BottleneckMetrics e = all_kinds()[0];
  e.probed = true, e.startup = 0, e.without_input = e.without_sums = e.step;
  const auto changes = changes_to_try(e);
  const auto threads =
      std::find_if(changes.begin(), changes.end(), [](const Change& c) { return c.key == "run.threads"; });
  ASSERT_NE(threads, changes.end());
  const auto found = findings(e, {{*threads, 0.0001, 0.002, ""}});
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found[0].evidence.find("; 8 compute threads on the 2 cores of a rank"), std::string::npos)
      << found[0].evidence;
}

TEST(Verdict, WaitingThatNoKeyMendsIsStillNamed) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) of(r, Phase::data_wait) = r.loader.wait_seconds = 1, r.step_times.mean = 0.020;
  ResolvedConfig s = plain();
  s.reader = "synthetic", s.workers = 2 * s.cores, s.prefetch = 0;
  const std::string said = verdict(bottleneck_metrics_of(a, s));
  EXPECT_EQ(said.find("input-bound: 50 % of the time waits for samples"), 0u) << said;
  EXPECT_NE(said.find(". no key is known to help\n"), said.npos) << said;
  BottleneckMetrics e = bottleneck_metrics_of(a, s);
  e.probed = true;
  EXPECT_NE(verdict(e).find(". no change that was tried helps\n"), said.npos) << verdict(e);
}

TEST(Verdict, ImagesThatTakeLongToDecodeAreNotReadOtherwise) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = r.loader.wait_seconds = 1, r.step_times.mean = 0.020;
    r.loader.read_seconds = 4, r.loader.decoded.seconds = 3.8;
  }
  ResolvedConfig s = plain();
  s.stored = "JPEG or PNG", s.workers = 2 * s.cores;
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, s)).find("data.reader"), std::string::npos)
      << verdict(bottleneck_metrics_of(a, s));
  for (RankAccount& r : a.ranks) r.loader.decoded.seconds = 0.2;
  EXPECT_NE(verdict(bottleneck_metrics_of(a, s)).find("data.reader"), std::string::npos)
      << verdict(bottleneck_metrics_of(a, s));
}

TEST(Verdict, CheckpointsThatAreNeededAreNotPromisedAway) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) of(r, Phase::checkpoint) = 1, r.checkpoints = 100, r.needed_checkpoints = 50;
  auto found = findings(bottleneck_metrics_of(a, plain()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].advice, "checkpoint.every 1 -> 25");
  EXPECT_NEAR(found[0].gain, 1 / (1 - 0.25 * 0.96), 1e-9);  // 2 of 50 are left
  EXPECT_NE(found[0].evidence.find(", 50 of them the best so far or the last"), std::string::npos) << found[0].evidence;
  for (RankAccount& r : a.ranks) r.checkpoints = 50;
  EXPECT_TRUE(findings(bottleneck_metrics_of(a, plain())).empty());
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, plain()))
                .find("checkpoint-bound: 50 % of the time goes into checkpoints. no key is known to help"),
            0u);
}

TEST(Verdict, NvlinksThatSumsDoNotTakeArePointedAt) {
  Account a = healthy();
  a.ranks[1].host = a.ranks[0].host;
  for (RankAccount& r : a.ranks) {
    of(r, Phase::communication) = 1, r.step_times.mean = 0.020;
    r.health.nvlinks = 18, r.health.nvlink_rate = 450e9;
    r.sums = {{0, 100, 100ull * (32 << 20), 0.1, 0.5, 0.9}};  // 6.7 GB/s
  }
  ResolvedConfig gpu = plain();
  gpu.gpu = true;
  const std::string said = verdict(bottleneck_metrics_of(a, gpu));
  EXPECT_NE(said.find("mpirun as it was started -> without NCCL_P2P_DISABLE"), said.npos) << said;
  EXPECT_NE(said.find("sums between GPUs have 6.711 GB/s; 18 NVLinks are made for 450.00"), said.npos) << said;
  const auto pointed_at = [&] { return verdict(bottleneck_metrics_of(a, gpu)).find("NCCL_P2P") != std::string::npos; };
  a.ranks[0].sums[0].busy = 0.02;  // 168 GB/s
  EXPECT_FALSE(pointed_at());
  a.ranks[0].sums = {{0, 100, 100ull << 20, 0.1, 0.5, 0.9}};
  EXPECT_FALSE(pointed_at()) << "a megabyte is mostly latency";
  a.ranks[0].sums = {{0, 100, 100ull * (32 << 20), 0.1, 0.5, 0.9}}, a.ranks[0].health.nvlinks = 0;
  EXPECT_FALSE(pointed_at());
}

TEST(Verdict, ALinkOfAGpuThatIsHeldDownIsPointedAtWhereCopiesAreWaitedFor) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) of(r, Phase::copy) = 1, r.step_times.mean = 0.020;
  DeviceHealthStats& h = a.ranks[1].health;
  h.pcie_generation = h.top_pcie_generation = 5, h.pcie_lanes = 4, h.top_pcie_lanes = 16;
  ResolvedConfig gpu = plain();
  gpu.gpu = true;
  std::string said = verdict(bottleneck_metrics_of(a, gpu));
  EXPECT_NE(said.find("the GPU's link generation 5 x4 -> generation 5 x16"), said.npos) << said;
  h.pcie_lanes = 16;
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, gpu)).find("GPU's link"), said.npos);
}

TEST(Verdict, ADeviceWithMuchMemoryLeftMayTakeLargerBatches) {
  BottleneckMetrics e = starved();
  e.gpu = true, e.without_input = e.without_sums = e.step, e.memory = 1e9, e.memory_limit = 80e9, e.global_batch = 64;
  EXPECT_TRUE(tries(changes_to_try(e), "train.global_batch", "256"));
  e.memory = 30e9;
  EXPECT_FALSE(tries(changes_to_try(e), "train.global_batch", "256"));
}

TEST(Verdict, AnOptimizerThatTakesMuchOfAStepIsSharedOrRunsSeldomer) {
  BottleneckMetrics e = starved();
  e.without_input = e.without_sums = e.step, e.optimizer = 0.003, e.global_batch = 64;  // of 20 ms
  EXPECT_TRUE(tries(changes_to_try(e), "optim.zero", "1"));
  EXPECT_FALSE(tries(changes_to_try(e), "train.global_batch", "256"));
  e.zero = true;
  EXPECT_FALSE(tries(changes_to_try(e), "optim.zero", "1")) << "it is shared already";
  e.zero = false, e.ranks = 1, e.optimizer = 0.009;
  EXPECT_FALSE(tries(changes_to_try(e), "optim.zero", "1")) << "with nobody";
  const auto changes = changes_to_try(e);
  ASSERT_TRUE(tries(changes, "train.global_batch", "256"));
  EXPECT_NE(changes.back().evidence.find("the optimizer takes 9.00 ms of each step"), std::string::npos);
  Account a = healthy();
  for (RankAccount& r : a.ranks) of(r, Phase::backward) -= 0.2, of(r, Phase::optimizer) += 0.2;
  EXPECT_NE(
      verdict(bottleneck_metrics_of(a, plain())).find("worth a trial: optim.zero 0 -> 1 (the optimizer takes 2.00 ms"),
      std::string::npos)
      << verdict(bottleneck_metrics_of(a, plain()));
}

TEST(Verdict, OtherWorkOnTheCoresOfAJobIsPointedAt) {
  Account a = healthy();
  for (RankAccount& r : a.ranks)
    r.process.cores = "0-3", r.process.cores_busy_seconds = 4.3, r.process.cpu_seconds = 4.2,
    r.process.stolen_seconds = 0;
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, plain())).find("nothing worth changing"), 0u);
  EXPECT_EQ(verdict(bottleneck_metrics_of(a, plain())).find("other work"), std::string::npos);
  a.ranks[1].process.cpu_seconds = 2.1, a.ranks[1].process.stolen_seconds = 0.11;
  const std::string said = verdict(bottleneck_metrics_of(a, plain()));
  EXPECT_EQ(said.find("compute-bound: "), 0u) << said;
  for (const char* part :
       {"; other work has 2.1 of a rank's 4 cores. no key is known to help\n",
        "worth a trial: other work on the host 2.1 of 4 cores of a rank -> none (srun --exclusive) (other processes "
        "ran on 2.0 of them on average, other virtual machines on 0.1)"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST(Verdict, TimeAtABatchThatWasReadyIsNotTheLoaders) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) of(r, Phase::data_wait) = 1, r.step_times.mean = 0.020;
  const BottleneckMetrics e = bottleneck_metrics_of(a, plain());
  EXPECT_NEAR(e.share(Bound::input), 0, 1e-12);
  EXPECT_NEAR(e.share(Bound::host), 0.01, 1e-12);
}

TEST(Verdict, TheFirstBatchIsTheStartsAndNotTheInputs) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = r.loader.wait_seconds = 0.5, r.step_times.mean = 0.015;
    r.loader.first_batch_seconds = 0.4;
  }
  BottleneckMetrics e = bottleneck_metrics_of(a, plain());
  EXPECT_NEAR(e.step, 0.011, 1e-12);
  EXPECT_NEAR(e.step - e.without_input, 0.001, 1e-12);
  EXPECT_NEAR(e.startup, 0.5, 1e-12);
  for (RankAccount& r : a.ranks) r.loader.first_batch_seconds = 2;  // the step began to wait later
  e = bottleneck_metrics_of(a, plain());
  EXPECT_NEAR(e.step, 0.010, 1e-12);
  EXPECT_EQ(verdict(e).find("nothing worth changing"), 0u) << verdict(e);
}

TEST(Verdict, CheckpointsTooOftenAreNamedWithWhatSeldomOnesGive) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) of(r, Phase::checkpoint) = 1, r.checkpoints = 100;
  const auto found = findings(bottleneck_metrics_of(a, plain()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].advice, "checkpoint.every 1 -> 50");
  EXPECT_FALSE(found[0].at_most);
  EXPECT_NEAR(found[0].gain, 1 / (1 - 0.5 * 0.98), 1e-9);
  EXPECT_NE(found[0].evidence.find("100 checkpoints of 10.0 ms each"), std::string::npos) << found[0].evidence;
}

TEST(Verdict, AStragglerIsNamedWithItsHostAndTheCause) {
  Account a = healthy();
  RankAccount &fast = a.ranks[0], &slow = a.ranks[1];
  of(slow, Phase::backward) += 1, of(fast, Phase::communication) += 1;
  fast.step_times.mean = slow.step_times.mean = 0.020;
  slow.process.preempted = 2000, fast.process.preempted = 10;
  const auto found = findings(bottleneck_metrics_of(a, plain()));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(int(found[0].bound), int(Bound::imbalance));
  EXPECT_EQ(found[0].advice, "train.balance even -> auto");
  EXPECT_NEAR(found[0].gain, 20 / (20 - 19.6 + 2 / (1 / 19.6 + 1 / 9.6)), 1e-9) << "both done at once";
  EXPECT_TRUE(found[0].at_most && !found[0].of_all) << "what smaller micro-batches cost is in a trial alone";
  EXPECT_NE(found[0].evidence.find("lost its cores 1818 times a second, the others 9"), std::string::npos)
      << found[0].evidence;
  EXPECT_NEAR(found[1].gain, 2, 1e-9);  // a second of two
  EXPECT_TRUE(found[1].at_most && found[1].of_all);
  EXPECT_NE(found[1].advice.find("rank 1 on node2 -> "), std::string::npos) << found[1].advice;
  ResolvedConfig balanced = plain();
  balanced.balanced = true;
  EXPECT_NE(findings(bottleneck_metrics_of(a, balanced))[0].advice.find("rank 1 on node2 -> "), std::string::npos);
  slow.health.slowed = {{"heat", 0.3}, {"power cap", 0.9}}, fast.health.slowed = {{"power cap", 0.8}};
  EXPECT_NE(straggler(a.ranks).cause.find("held down 30 % of the time, the others' 0 %: heat"), std::string::npos)
      << straggler(a.ranks).cause;
  slow.health.slowed = fast.health.slowed = {{"power cap", 0.9}};
  slow.process.cores = "2-3", slow.process.cores_busy_seconds = 2.5, slow.process.cpu_seconds = 1.5;  // of 2 s
  fast.process.cores = "0-1", fast.process.cores_busy_seconds = 2, fast.process.cpu_seconds = 1.9;
  EXPECT_NE(straggler(a.ranks).cause.find("took 45 % of its cores, the others' 5 %: a noisy neighbour"),
            std::string::npos)
      << "all are held down alike";
  slow.process.throttled_seconds = 0.9;
  EXPECT_NE(straggler(a.ranks).cause.find("a quota"), std::string::npos) << straggler(a.ranks).cause;
  of(slow, Phase::data_wait) = 1.5, of(fast, Phase::communication) += 1.5;
  EXPECT_NE(straggler(a.ranks).cause.find("a quota"), std::string::npos) << "it held the loader back, too";
  RankAccount late = slow;  // for its first batch alone
  late.loader.wait_seconds = late.loader.first_batch_seconds = 2, of(late, Phase::data_wait) += 2;
  EXPECT_NEAR(straggler({fast, late}).seconds, straggler(a.ranks).seconds, 1e-9);
  slow.process.throttled_seconds = 0, slow.process.cores_busy_seconds = 3.3;
  EXPECT_NE(straggler(a.ranks).cause.find("a noisy neighbour"), std::string::npos) << straggler(a.ranks).cause;
  of(slow, Phase::data_wait) = 3;
  EXPECT_NE(straggler(a.ranks).cause.find("a slow disk"), std::string::npos) << straggler(a.ranks).cause;
  EXPECT_EQ(straggler(healthy().ranks).rank, -1);
}

TEST(Verdict, WrongBindingIsSaidFirstWhateverItShowsAs) {
  Account even = healthy(), uneven = healthy(), waiting = healthy();
  of(uneven.ranks[1], Phase::backward) += 1, of(uneven.ranks[0], Phase::communication) += 1;
  for (RankAccount& r : uneven.ranks) r.step_times.mean = 0.020;
  for (RankAccount& r : waiting.ranks) {
    of(r, Phase::communication) += 1, r.step_times.mean = 0.020;
    r.sums = {{0, 100, 100u << 20, 0, 1, 1}};
  }
  ResolvedConfig wrong = plain();
  wrong.misplaced = "ranks 0 and 1 of one host are bound to different cores that overlap";
  EXPECT_EQ(verdict(bottleneck_metrics_of(even, plain())).find("nothing worth changing"), 0u);
  for (const auto& [account, bound] :
       {std::pair(even, "compute-bound: "), {uneven, "imbalanced: "}, {waiting, "communication-bound: "}}) {
    const std::string said = verdict(bottleneck_metrics_of(account, wrong)), first = said.substr(0, said.find('\n'));
    EXPECT_EQ(first.find(bound), 0u) << said;
    EXPECT_NE(first.find(wrong.misplaced), std::string::npos) << said;
    EXPECT_EQ(said.find("train.balance"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace millrace
