#include "millrace/advisor/rules/scaling_model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"

namespace millrace {
namespace scaling_model_test {

constexpr double ms = 1e-3;
constexpr std::uint64_t bucket = 1 << 20;

// One rank: 1 ms of waiting, 5 forward, 10 backward, 2 optimizer, 2 for the rest. The buckets become ready at regular
// intervals in the backward pass.
StepProfile plain(int buckets = 4) {
  StepProfile s;
  s.samples = 32;
  s.step = 20 * ms;
  s.input = 1 * ms;
  s.forward = 5 * ms;
  s.backward = s.last_backward = 10 * ms;
  s.optimizer = 2 * ms;
  s.other = 2 * ms;
  for (int b = 1; b <= buckets; ++b) s.ready.push_back({b * bucket, 10 * ms * b / buckets});
  s.own = {{20 * ms, 100}};
  s.bucket_bytes = bucket;
  s.meets = false;
  return s;
}
// An interconnect on which an all-reduce of a bucket between two ranks on two nodes takes this time.
Interconnect taking(double seconds) {
  Interconnect w;
  w.inter_node.bytes_per_second = double(bucket) / seconds;
  return w;
}

TEST(ScalingModel, OneRankIsPredictedAsMeasured) {
  for (const Scaling scaling : {Scaling::weak, Scaling::strong}) {
    const Prediction p = predict(plain(), taking(1), 1, scaling);
    EXPECT_NEAR(p.step, 20 * ms, 1e-12);
    EXPECT_EQ(p.exposed + p.sums + p.meeting + p.straggling, 0);
    EXPECT_DOUBLE_EQ(p.efficiency, 1);
    EXPECT_EQ(p.samples, 32);
  }
}

TEST(ScalingModel, ASingleBucketIsFullyExposed) {
  const Prediction p = predict(plain(1), taking(3 * ms), 2, Scaling::weak);
  EXPECT_NEAR(p.exposed, 3 * ms, 1e-12);
  EXPECT_NEAR(p.step, 23 * ms, 1e-12);
  EXPECT_TRUE(p.fully_overlapped) << "except for the last bucket";
  EXPECT_NEAR(p.efficiency, 20. / 23, 1e-12);
  EXPECT_EQ(p.samples, 64);
}

TEST(ScalingModel, WithoutOverlapAllCommunicationIsExposed) {
  StepProfile off = plain(), inside = plain();
  off.overlap = false;
  inside.beside = false;
  for (const StepProfile& s : {off, inside}) {
    const Prediction p = predict(s, taking(1 * ms), 2, Scaling::weak);
    EXPECT_NEAR(p.sums, 4 * ms, 1e-12);
    EXPECT_NEAR(p.exposed, 4 * ms, 1e-12);
    EXPECT_NEAR(p.step, 24 * ms, 1e-12);
    EXPECT_FALSE(p.fully_overlapped);
  }
}

// The buckets become ready at 2.5, 5, 7.5 and 10 ms.
TEST(ScalingModel, CommunicationBeyondTheBackwardPassIsExposed) {
  Prediction p = predict(plain(), taking(2 * ms), 2, Scaling::weak);
  EXPECT_NEAR(p.exposed, 2 * ms, 1e-12) << "the last bucket";
  EXPECT_TRUE(p.fully_overlapped);
  p = predict(plain(), taking(4 * ms), 2, Scaling::weak);  // one after the other, from 2.5 ms to 18.5 ms
  EXPECT_NEAR(p.exposed, 8.5 * ms, 1e-12);
  EXPECT_FALSE(p.fully_overlapped);
  EXPECT_NEAR(p.sums, 16 * ms, 1e-12);
  StepProfile s = plain();
  s.ready[2].seconds = 10 * ms;  // the last two become ready together
  p = predict(s, taking(2 * ms), 2, Scaling::weak);
  EXPECT_NEAR(p.exposed, 4 * ms, 1e-12);
  EXPECT_TRUE(p.fully_overlapped);
}

TEST(ScalingModel, Bf16HalvesTheBytesAndStatisticsComeFirst) {
  StepProfile s = plain();
  s.element_bytes = 2;
  EXPECT_NEAR(predict(s, taking(4 * ms), 2, Scaling::weak).exposed, 2 * ms, 1e-12);
  s.stats_bytes = 8.5 * bucket;  // the link is free at 8.5, 9, 9.5, 10 and 10.5 ms
  EXPECT_NEAR(predict(s, taking(1 * ms), 2, Scaling::weak).exposed, 0.5 * ms, 1e-12);
  EXPECT_NEAR(predict(s, taking(4 * ms), 2, Scaling::weak).sums, (34 + 8) * ms, 1e-12);
}

TEST(ScalingModel, AllReduceTimeFollowsTheFormula) {
  Interconnect w;
  w.inter_node = {1e9, 5e-6};
  EXPECT_NEAR(all_reduce_seconds(8e6, 8, w), 2 * 7. / 8 * 8e-3 + 2 * 3 * 5e-6, 1e-15);
  EXPECT_NEAR(all_reduce_seconds(8e6, 5, w), 2 * 4. / 5 * 8e-3 + 2 * 3 * 5e-6, 1e-15) << "log2 rounded up";
  w.ring = true;
  EXPECT_NEAR(all_reduce_seconds(8e6, 8, w), 2 * 7. / 8 * 8e-3 + 2 * 7 * 5e-6, 1e-15);
  EXPECT_EQ(all_reduce_seconds(8e6, 1, w), 0);
  EXPECT_NEAR(reduce_scatter_seconds(8e6, 8, w), all_reduce_seconds(8e6, 8, w) / 2, 1e-15);
  // First inside the nodes, then between them; the ranks of a node share the link.
  w = {{1e9, 5e-6}, {10e9, 1e-6}, 4, false};
  EXPECT_NEAR(all_reduce_seconds(8e6, 16, w), 2 * (3. / 4 * 0.8e-3 + 2 * 1e-6) + 2 * (3. / 4 * 8e-3 + 2 * 5e-6), 1e-15);
  EXPECT_NEAR(all_reduce_seconds(8e6, 4, w), 2 * (3. / 4 * 0.8e-3 + 2 * 1e-6), 1e-15) << "one node";
}

TEST(ScalingModel, FitRecoversTheLink) {
  for (const bool ring : {false, true})
    for (const int ranks : {2, 3, 8}) {
      Interconnect w;
      w.inter_node = {3e9, 7e-6};
      w.ring = ring;
      std::vector<AllReduceTime> times;
      for (const double bytes : {8e3, 64e3, 512e3, 4e6}) times.push_back({bytes, all_reduce_seconds(bytes, ranks, w)});
      const LinkModel fitted = fit_link(times, ranks, ring);
      EXPECT_NEAR(fitted.bytes_per_second, 3e9, 1);
      EXPECT_NEAR(fitted.latency, 7e-6, 1e-12);
    }
  const LinkModel one_size = fit_link({{1e6, 1 * ms}, {1e6, 1 * ms}}, 2, false);
  EXPECT_NEAR(one_size.bytes_per_second, 1e9, 1);
  EXPECT_EQ(one_size.latency, 0);
  EXPECT_EQ(fit_link({{1e3, 1e-6}, {1e6, 2e-3}}, 2, false).latency, 0) << "not below zero";
  EXPECT_THROW(fit_link({}, 2, false), Error);
}

TEST(ScalingModel, TheMaximumGrowsWithTheNumberOfDraws) {
  const std::vector<TimeBin> bins{{10 * ms, 1}, {20 * ms, 1}};
  EXPECT_NEAR(expected_longest(bins, 1), 15 * ms, 1e-12);
  EXPECT_NEAR(expected_longest(bins, 2), 17.5 * ms, 1e-12);
  EXPECT_NEAR(expected_longest(bins, 1000), 20 * ms, 1e-12);
  EXPECT_EQ(expected_longest({}, 4), 0);
  StepProfile s = plain(1);
  s.own = {{15 * ms, 1}, {25 * ms, 1}};  // 20 ms on average; the slower of two: 22.5 ms
  const Prediction p = predict(s, {}, 2, Scaling::weak);
  EXPECT_NEAR(p.straggling, 2.5 * ms, 1e-12);
  EXPECT_NEAR(p.step, 22.5 * ms, 1e-12);
  const auto moves = scaling_advice(s, {}, {{2}, Scaling::weak, 0.9});  // 20 of 22.5 is below 0.9
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].change, "ranks of equal speed");
}

TEST(ScalingModel, StrongScalingDividesTheBatch) {
  StepProfile s = plain();
  const Prediction p = predict(s, {}, 4, Scaling::strong);  // a quarter of 16 ms, and the other 4 ms unchanged
  EXPECT_NEAR(p.step, 8 * ms, 1e-12);
  EXPECT_NEAR(p.efficiency, 20. / (4 * 8), 1e-12);
  EXPECT_EQ(p.samples, 32);
  // Micro-batches of a fixed size, 4 in total: three ranks take at most two each, eight ranks one.
  s.fixed_micro_batch = true;
  s.micro_batches = 4;
  s.last_backward = 2.5 * ms;
  EXPECT_NEAR(predict(s, {}, 3, Scaling::strong).step, 12 * ms, 1e-12);
  EXPECT_NEAR(predict(s, {}, 8, Scaling::strong).step, 8 * ms, 1e-12);
  EXPECT_NEAR(predict(s, {}, 1, Scaling::strong).step, 20 * ms, 1e-12);
  EXPECT_NEAR(predict(s, {}, 8, Scaling::weak).step, 20 * ms, 1e-12);
}

// Two buckets, needed at 0 and 2.5 ms of the forward pass. All-gather and reduce-scatter take 2 ms each.
TEST(ScalingModel, ZeroUsesReduceScatterAllGatherAndAShardedOptimizer) {
  StepProfile s = plain(2);
  s.zero = true;
  const Prediction p = predict(s, taking(4 * ms), 2, Scaling::weak);
  const double squares = 2. * bucket / 4 / 4096 * 8 / bucket * 4 * ms;
  EXPECT_NEAR(p.own, 19 * ms, 1e-12);
  EXPECT_NEAR(p.exposed, 2 * ms + 2 * ms + squares, 1e-12)
      << "the first all-gather and the last reduce-scatter are exposed";
  EXPECT_NEAR(p.sums, 8 * ms + squares, 1e-12);
  s.weight_bytes = 2;
  const Prediction halved = predict(s, taking(4 * ms), 2, Scaling::weak);
  EXPECT_NEAR(halved.exposed, 1 * ms + 2 * ms + squares, 1e-12) << "16-bit weights take half of the time";
  EXPECT_NEAR(halved.sums, 6 * ms + squares, 1e-12);
  s.weight_bytes = 4;
  s.beside = false;
  EXPECT_NEAR(predict(s, taking(4 * ms), 2, Scaling::weak).exposed, 8 * ms + squares, 1e-12);
  // The shards of 256 ranks, 16 KiB each, fill four of these buckets.
  s = plain(8);
  s.zero = true;
  EXPECT_NEAR(predict(s, taking(1 * ms), 256, Scaling::weak).exposed,
              predict(
                  [&] {
                    StepProfile larger = s;
                    larger.bucket_bytes = 4 * bucket;
                    return larger;
                  }(),
                  taking(1 * ms), 256, Scaling::weak)
                  .exposed,
              1e-12);
}

TEST(ScalingModel, LatencyLimitsScalingAndLargerBucketsExtendIt) {
  StepProfile s = plain(16);
  Interconnect w;
  w.inter_node = {100e9, 20e-6};
  w.ring = true;
  const ScalingLimit now = scaling_limit(s, w, {{4096}, Scaling::weak, 0.9});
  EXPECT_GT(now.ranks, 1);
  EXPECT_EQ(now.fails_at, 2 * now.ranks);
  EXPECT_GE(now.efficiency, 0.9);
  EXPECT_LT(predict(s, w, now.fails_at, Scaling::weak).efficiency, 0.9);
  EXPECT_GE(now.fails_at, now.overlapped_up_to);
  const auto moves = scaling_advice(s, w, {{4096}, Scaling::weak, 0.9});
  ASSERT_FALSE(moves.empty());
  for (const ScalingAdvice& r : moves) EXPECT_GT(r.scaling_limit.ranks, now.ranks) << r.change;
  EXPECT_TRUE(std::any_of(moves.begin(), moves.end(),
                          [](const ScalingAdvice& r) { return r.change == "comm.bucket_size = 4MiB"; }));
  EXPECT_TRUE(std::none_of(moves.begin(), moves.end(), [](const ScalingAdvice& r) {
    return r.change == "comm.overlap = on";
  })) << "overlap is on already";
}

TEST(ScalingModel, TheFirstLineStatesTheLimitAndTheRemedies) {
  ScalingForecast f;
  f.shape = plain();
  f.interconnect = taking(1 * ms);
  f.ranks = {2, 64};
  EXPECT_EQ(report(f).find("scales to 64 ranks at 91 % efficiency, with 32 samples per rank\n"), 0u) << report(f);
  EXPECT_EQ(report(f).find("warning"), std::string::npos) << "the model of a single rank is exact";
  ScalingForecast off = f;
  off.shape.ranks = 2;  // the model gives 21 ms
  off.of_run = taking(1 * ms);
  EXPECT_EQ(report(off).find("warning"), std::string::npos) << report(off);
  off.shape.step = 25 * ms;
  EXPECT_NE(
      report(off).find("warning: the model gives 21.00 ms for a step of the run itself, which took 25.00 ms (-16 %)"),
      std::string::npos)
      << report(off);
  off.interconnect = taking(5 * ms);
  EXPECT_NE(report(off).find("gives 21.00 ms"), std::string::npos) << "the requested link does not matter";
  f.interconnect = taking(2.5 * ms);
  EXPECT_EQ(
      report(f).find("does not scale at 90 % efficiency: on 2 ranks, 2.5 ms of communication are exposed in a step of "
                     "22.5 ms; it scales to 8 with comm.grad_dtype = bf16, to 2 with "),
      0u)
      << report(f);
  const auto j = nlohmann::json::parse(report_json(f));
  EXPECT_EQ(j["weak"]["steps"].size(), 2u);
  EXPECT_EQ(j["strong"]["steps"].size(), 1u) << "64 ranks need at least 64 samples";
  EXPECT_NEAR(j["weak"]["steps"][0]["step"], 22.5 * ms, 1e-9);
  EXPECT_EQ(j["weak"]["reach"]["fails_at"], 2);
}

TEST(ScalingModel, TheProfileIsTheMeanOfTheRanksAndOldRunsHaveNone) {
  Account a;
  for (const double more : {0., 2 * ms}) {
    RankAccount r;
    StepTimingStats& p = r.pace;
    p.steps = 10;
    p.step = 20 * ms;
    p.forward = 5 * ms + more;
    p.backward = p.last_backward = 8 * ms;
    p.samples = 64;
    p.ready = {{bucket, 4 * ms + more}, {2 * bucket, 8 * ms}};
    p.own = {{13 * ms + more, 10}};
    r.sums = {{0, 10, 10 * bucket, 0, 10 * (2 * ms + more), 0}, {-1, 10, 80, 0, 1, 0}};
    a.ranks.push_back(r);
  }
  const StepProfile s = step_profile_of(Account::from_json(a.json()));
  EXPECT_EQ(s.ranks, 2);
  EXPECT_NEAR(s.forward, 6 * ms, 1e-12);
  EXPECT_NEAR(s.ready[0].seconds, 5 * ms, 1e-12);
  EXPECT_NEAR(expected_longest(s.own, 1), 14 * ms, 1e-12);
  const auto sums = all_reduce_times(a, false);
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_NEAR(sums[0].seconds, 3 * ms, 1e-12);
  EXPECT_EQ(sums[0].bytes, double(bucket));
  a.ranks[0].pace = {};
  EXPECT_THROW(step_profile_of(a), Error);
  // ZeRO has two collectives per bucket; older summaries list them as one all-reduce that ran twice as often.
  for (RankAccount& r : a.ranks)
    r.sums = {{0, 10, 10 * bucket, 0, 10 * ms, 0, CollectiveOp::reduce_scatter},
              {0, 10, 10 * bucket, 0, 30 * ms, 0, CollectiveOp::all_gather}};
  const auto halves = all_reduce_times(a, true);
  for (RankAccount& r : a.ranks) r.sums = {{0, 20, 20 * bucket, 0, 40 * ms, 0}};
  const auto older = all_reduce_times(a, true);
  ASSERT_EQ(halves.size(), 1u);
  ASSERT_EQ(older.size(), 1u);
  EXPECT_NEAR(halves[0].seconds, 4 * ms, 1e-12);
  EXPECT_NEAR(older[0].seconds, 4 * ms, 1e-12);
  EXPECT_EQ(halves[0].bytes, double(bucket));
  EXPECT_EQ(older[0].bytes, double(bucket));
}

}  // namespace scaling_model_test
}  // namespace millrace
