// ZeRO stage 1 changes which rank stores and updates which weights and moments. It changes no bit of the results.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "millrace/config/keys.hpp"
#include "millrace/train/distributed/weight_all_gather.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace zero_test {

struct Outcome {
  std::vector<nlohmann::json> metrics;
  nlohmann::json validation;
  test::Tensors tensors;
};

// 20 thousand parameters: several buckets, each with shards for several ranks, and padding after the last parameter.
RunConfig wide_run() {
  RunConfig c = test::small_run(true);
  c.model.layers = {"conv 32 3x3", "batchnorm", "relu",       "conv 64 3x3",
                    "batchnorm",   "relu",      "globalpool", "linear outputs"};
  c.data.valid = {"synthetic:images:rows=37,shape=9x8x3,classes=4,seed=2"};
  c.optim.schedule = LrSchedule::constant;  // does not depend on where a run ends
  c.optim.clip = 0.5;
  c.comm.bucket_size = 4096;
  c.train.micro_batch = 8;
  c.train.steps = 6;
  return c;
}

void go(RunConfig c, int zero, int ranks, const test::TemporaryFolder& folder) {
  c.run.dir = folder.path.string();
  c.optim.zero = zero;
  run_thread_world(ranks, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); });
}

Outcome outcome(const test::TemporaryFolder& folder) {
  Outcome out;
  std::ifstream lines(folder.path / "metrics.jsonl"), summary(folder.path / "summary.json");
  for (std::string line; std::getline(lines, line);) out.metrics.push_back(nlohmann::json::parse(line));
  out.validation = nlohmann::json::parse(summary)["valid_loss"];
  out.tensors = test::tensors_of(folder.path);
  return out;
}

Outcome outcome(const RunConfig& c, int zero, int ranks) {
  const test::TemporaryFolder folder;
  go(c, zero, ranks, folder);
  return outcome(folder);
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  ASSERT_EQ(a.metrics.size(), b.metrics.size()) << what;
  ASSERT_FALSE(a.metrics.empty());
  for (std::size_t i = 0; i < a.metrics.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "loss_scale", "skipped"})
      EXPECT_EQ(a.metrics[i].at(key), b.metrics[i].at(key)) << what << ", " << key << " of step " << i + 1;
  EXPECT_FALSE(a.validation.is_null()) << what;
  EXPECT_EQ(a.validation, b.validation) << what;
  ASSERT_EQ(a.tensors.size(), b.tensors.size()) << what;
  for (const auto& [name, values] : a.tensors)
    EXPECT_TRUE(test::same_bits(values, b.tensors.at(name))) << what << ": " << name;
}

TEST(Zero, ChangesNoBitWithAnyOptimizer) {
  for (const char* optimizer : {"sgd", "adamw", "lars", "lamb", "muon"})
    for (const int ranks : {1, 2, 3}) {  // 4, 2 and uneven numbers of micro-batches
      RunConfig c = wide_run();
      find_key("optim.name")->set(c, {optimizer});
      expect_same(outcome(c, 0, ranks), outcome(c, 1, ranks), fmt::format("{} on {} ranks", optimizer, ranks));
    }
}

TEST(Zero, ChangesNoBitInSixteenBits) {
  for (const char* optimizer : {"sgd", "adamw", "lars", "lamb", "muon"})
    for (const int ranks : {1, 2, 3}) {
      RunConfig c = wide_run();
      find_key("optim.name")->set(c, {optimizer});
      c.run.precision = Precision::bf16;
      expect_same(outcome(c, 0, ranks), outcome(c, 1, ranks), fmt::format("{} on {} ranks", optimizer, ranks));
    }
}

TEST(Zero, ChangesNoBitWithSixteenBitGradientsAndOverflows) {
  for (const char* optimizer : {"sgd", "adamw", "lamb", "muon"})
    for (const int ranks : {2, 3}) {
      RunConfig c = wide_run();
      find_key("optim.name")->set(c, {optimizer});
      c.optim.lr = 0.01;
      c.run.precision = Precision::fp16;
      c.optim.loss_scale = 1024;
      c.optim.scale_interval = 2;
      c.test.force_overflow_at = 3;
      c.comm.grad_dtype = DType::bf16;
      const Outcome plain = outcome(c, 0, ranks);
      EXPECT_EQ(plain.metrics[2].at("skipped"), true);
      expect_same(plain, outcome(c, 1, ranks), fmt::format("{} on {} ranks", optimizer, ranks));
    }
}

TEST(Zero, AnOverflowInTheShardOfOneRankSkipsTheStepOnAllRanks) {
  RunConfig c = wide_run();
  c.run.precision = Precision::fp16;
  c.optim.loss_scale = 1e9;
  c.optim.clip = 0;  // float16 ends at 65504: some gradients overflow
  const Outcome plain = outcome(c, 0, 2);
  EXPECT_EQ(plain.metrics[0].at("skipped"), true);
  expect_same(plain, outcome(c, 1, 2), "a loss scale that is too large");
}

TEST(Zero, ShortStepsWorkOnRanksWithoutRows) {
  RunConfig c = wide_run();
  c.data.train = {"synthetic:images:rows=65,shape=9x8x3,classes=4"};  // steps of 32, 32 and 1 row
  expect_same(outcome(c, 0, 3), outcome(c, 1, 3), "3 ranks");
  c.train.micro_batch = 32;  // some ranks have no rows in every step, also in steps after an evaluation
  expect_same(outcome(c, 0, 3), outcome(c, 1, 3), "3 ranks, rows for one");
}

TEST(Zero, OverlapProgressAndBucketSizeChangeNoBit) {
  RunConfig c = wide_run();
  c.optim.name = OptimizerName::adamw;
  c.optim.lr = 0.001;
  const Outcome expected = outcome(c, 0, 2);
  for (const char* progress : {"inline", "thread"})
    for (const bool overlap : {false, true}) {
      find_key("comm.progress")->set(c, {progress});
      c.comm.overlap = overlap;
      c.comm.bucket_size = overlap ? 1024 : 1 << 20;
      expect_same(expected, outcome(c, 1, 2), fmt::format("{}, overlap {}", progress, overlap));
    }
}

// Runs three steps, then resumes for three more with another setting or number of ranks.
void expect_resumes(Precision precision, OptimizerName optimizer = OptimizerName::adamw) {
  struct Half {
    int zero, ranks;
  };
  RunConfig c = wide_run();
  c.optim.name = optimizer;
  c.optim.lr = 0.001;
  c.run.precision = precision;
  const auto halves = [&](Half first, Half second) {
    const test::TemporaryFolder folder;
    RunConfig part = c;
    part.train.steps = 3;
    go(part, first.zero, first.ranks, folder);
    go(c, second.zero, second.ranks, folder);
    return outcome(folder);
  };
  const Outcome whole = outcome(c, 0, 2);
  expect_same(whole, halves({1, 2}, {1, 2}), "with, then with");
  expect_same(whole, halves({0, 2}, {1, 2}), "without, then with");
  expect_same(whole, halves({1, 2}, {0, 2}), "with, then without");
  const Outcome fewer = halves({0, 3}, {0, 2});
  expect_same(fewer, halves({1, 3}, {1, 2}), "3 ranks, then 2");
  expect_same(fewer, halves({1, 3}, {0, 2}), "3 ranks with, then 2 without");
  expect_same(halves({0, 1}, {0, 3}), halves({1, 1}, {1, 3}), "1 rank, then 3");
}

TEST(Zero, ARunResumesWithOrWithoutZeroAndOnOtherRanks) { expect_resumes(Precision::fp32); }
TEST(Zero, ARunInSixteenBitsResumesWithOrWithoutZeroAndOnOtherRanks) { expect_resumes(Precision::bf16); }
TEST(Zero, ARunWithMuonResumesWithOrWithoutZeroAndOnOtherRanks) {
  for (const auto precision : {Precision::fp32, Precision::bf16}) expect_resumes(precision, OptimizerName::muon);
}

// The float32 parameters travel as float32, all others in 16 bits.
TEST(Zero, WeightsAreAllGatheredInTheTypeInWhichTheyAreRead) {
  constexpr std::int64_t block = 2 * OptimizerSpec::chunk_size, count = 4 * block;
  run_thread_world(2, [&](World& world) {
    const ExecutionContext compute = make_cpu_context(world, {});
    const BucketSpec buckets{block, world.size(), world.rank(), block / 2};
    ASSERT_EQ(buckets.whole(count), block);
    const SharedRegion master = compute.collective->allocate(block * 4),
                       weights = compute.collective->allocate(count * 2);
    auto* wide = static_cast<float*>(master.data);
    auto* narrow = static_cast<std::uint16_t*>(weights.data);
    for (const OptimizerShard& s : buckets.shards(count))
      for (std::int64_t i = s.begin; i < s.begin + s.count; ++i) {
        if (i < block) wide[i] = float(i + 1);
        narrow[i] = std::uint16_t(i < block ? 7 : i);
      }
    world.barrier();
    WeightAllGather gather(*compute.collective, *compute.backend, buckets, count, master, weights, DType::f16);
    gather.begin();
    gather.finish();
    std::vector<std::uint16_t> expected(std::size_t(count), 0);
    for (std::int64_t i = 0; i < count; ++i) expected[std::size_t(i)] = std::uint16_t(i);
    for (std::int64_t i = 0; i < block; ++i) ASSERT_EQ(wide[i], float(i + 1));
    compute.backend->convert(expected.data(), DType::f16, wide, DType::f32, block);
    EXPECT_EQ(std::memcmp(narrow, expected.data(), expected.size() * 2), 0);
    std::vector<CommSpan> spans;
    compute.collective->take_spans(spans);
    ASSERT_EQ(spans.size(), 4u);
    for (std::size_t b = 0; b < 4; ++b) EXPECT_EQ(spans[b].bytes, std::size_t(block) * (b == 0 ? 4 : 2)) << b;
    world.barrier();
  });
}

void expect_even_shards(BucketSpec spec, std::int64_t count) {
  const std::int64_t whole = spec.whole(count);
  EXPECT_GE(whole, std::min(count, spec.f32_count));
  std::vector<int> owners(std::size_t(spec.padded(count)), 0);
  for (const Bucket& b : spec.split(count)) EXPECT_TRUE(b.begin >= whole || b.end <= whole);
  for (spec.rank = 0; spec.rank < spec.ranks; ++spec.rank) {
    std::int64_t mine = 0, behind = 0;
    for (const OptimizerShard& s : spec.shards(count)) {
      for (std::int64_t i = s.begin; i < s.begin + s.count; ++i) ++owners[std::size_t(i)];
      mine += s.count;
      behind += s.begin < whole ? 0 : s.count;
    }
    EXPECT_EQ(mine * spec.ranks, spec.padded(count));
    std::int64_t stored = 0;
    for (const StoredRange& r : spec.stored(count, whole)) {
      EXPECT_EQ(r.offset, stored);
      stored += r.end - r.begin;
    }
    EXPECT_EQ(stored, whole + behind);
  }
  EXPECT_TRUE(std::all_of(owners.begin(), owners.end(), [](int n) { return n == 1; }));
  EXPECT_LT(std::int64_t(owners.size()) - count, spec.ranks * OptimizerSpec::chunk_size);
}

TEST(Zero, BucketsAreShardedEvenly) {
  for (const int ranks : {2, 3, 8})
    for (const std::int64_t count : {64, 19000, 1000 * 4096})
      for (const std::int64_t elements : {1, 100000, 1 << 30})
        for (const std::int64_t f32_count : {std::int64_t(0), std::int64_t(64), count})
          expect_even_shards({elements, ranks, 0, f32_count}, count);
}

// Each block of the forward pass takes 20 ms, and its all-gather is slowed to half of that, so all but the first
// all-gather overlap with computation. The best of several attempts counts, because a busy machine may delay a rank.
TEST(Zero, AllGathersOverlapWithForward) {
  run_thread_world(2, [](World& world) {
    ExecutionOptions options;
    options.collective.progress = CollectiveOptions::Progress::thread;
    constexpr std::int64_t blocks = 10, block = 1 << 18;  // 1 MiB each
    options.collective.delay_seconds_per_mb = 0.0095;
    const ExecutionContext compute = make_cpu_context(world, options);
    const BucketSpec buckets{block, world.size(), world.rank()};
    const SharedRegion master = compute.collective->allocate(blocks * block * 4);
    auto* data = static_cast<float*>(master.data);
    WeightAllGather weight_all_gather(*compute.collective, *compute.backend, buckets, blocks * block, master, {},
                                      DType::f32);
    double best = 1;  // part of the all-gather time that the forward pass waits
    for (int attempt = 0; attempt < 5 && best >= 0.3; ++attempt) {
      for (const OptimizerShard& s : buckets.shards(blocks * block))
        for (std::int64_t i = s.begin; i < s.begin + s.count; ++i) data[i] = float(attempt + 1);
      world.barrier();
      double waited = 0, busy = 0;
      weight_all_gather.begin();
      for (std::int64_t b = 0; b < blocks; ++b) {
        const auto began = std::chrono::steady_clock::now();
        weight_all_gather.wait_for(b * block, (b + 1) * block);
        waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        for (std::int64_t i = b * block; i < (b + 1) * block; ++i) ASSERT_EQ(data[i], float(attempt + 1)) << i;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      weight_all_gather.finish();
      std::vector<CommSpan> spans;
      compute.collective->take_spans(spans);
      ASSERT_EQ(spans.size(), std::size_t(blocks));
      for (const CommSpan& s : spans) busy += s.ended - s.started;
      EXPECT_GE(busy, 0.0095 * 1.04 * blocks) << "the all-gathers were not slowed";
      double part[] = {waited / busy};
      world.all_reduce(std::span<double>(part), World::Reduce::max);
      best = std::min(best, part[0]);
    }
    EXPECT_LT(best, 0.3);
    world.barrier();
  });
}

}  // namespace zero_test
}  // namespace millrace
