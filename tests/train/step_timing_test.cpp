// The step timings that a run records for the scaling prediction. Computation is simulated by sleeping.
#include <gtest/gtest.h>

#include "millrace/advisor/rules/scaling_model.hpp"
#include "millrace/base/files.hpp"
#include "train/linear_run.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace step_timing_test {

constexpr double a_sample = 0.0015;

Account account_of(RunConfig c, int ranks) {
  const test::TemporaryFolder folder;
  c.run.dir = (folder.path / "run").string();
  run_thread_world(ranks, [&](World& world) { train(world, c); });
  return Account::from_json(nlohmann::json::parse(read_file(folder.path / "run/summary.json")).at("account").dump());
}

// 13 steps, of which the last in an epoch is short. Each rank has two micro-batches of four samples per step.
RunConfig simulated_run(int ranks) {
  RunConfig c = test::small_run(true, std::to_string(8 * ranks * 6 + 1));
  c.model.name = ModelName::mlp;
  c.model.hidden = {64, 64, 64};
  c.data.augment = false;
  c.train.global_batch = 8 * ranks;
  c.train.micro_batch = 4;
  c.train.steps = 13;
  c.test.compute_delay = a_sample;
  c.comm.bucket_size = 16 << 10;
  c.comm.progress = CollectiveOptions::Progress::thread;
  return c;
}

// On a busy machine sleeps take longer, never shorter. So times are checked only against lower bounds or each other.
TEST(StepTiming, ContainsWhenBucketsWereReadyAndTheWaitsForOtherRanks) {
  for (const int ranks : {1, 2}) {
    const Account account = account_of(simulated_run(ranks), ranks);
    const StepProfile s = step_profile_of(account);
    EXPECT_EQ(s.ranks, ranks);
    EXPECT_EQ(s.micro_batches, 2);
    EXPECT_EQ(s.samples, 8 * ranks);
    EXPECT_EQ(account.ranks[0].pace.steps, 13u - 4 - 1) << "all but the first steps and the short one";
    EXPECT_GE(s.forward, 8 * a_sample / 3);
    // Slightly less than the full time, because the padding between parameters is never announced.
    const double pass = 0.98 * 4 * a_sample * 2 / 3;
    EXPECT_GE(s.last_backward, pass);
    EXPECT_GE(s.backward, s.last_backward + pass);
    ASSERT_GE(s.ready.size(), 3u);
    for (std::size_t i = 1; i < s.ready.size(); ++i) {
      EXPECT_GT(s.ready[i].bytes, s.ready[i - 1].bytes);
      EXPECT_GE(s.ready[i].seconds, s.ready[i - 1].seconds);
    }
    EXPECT_GE(s.ready.back().seconds, pass);
    EXPECT_LE(s.ready.back().seconds, s.last_backward);
    EXPECT_LT(s.ready.front().seconds, s.ready.back().seconds);
    EXPECT_EQ(all_reduce_times(account, false).empty(), ranks == 1);
    const Prediction alone = predict(s, {}, 1, Scaling::weak);
    if (ranks == 1)
      EXPECT_NEAR(alone.step, s.step, 1e-9);
    else
      EXPECT_LT(alone.step, s.step);
  }
}

TEST(StepTiming, ContainsTheInputPassPerSample) {
  for (const bool augments : {false, true}) {
    RunConfig c = simulated_run(2);
    c.data.augment = augments;
    c.test.compute_delay = 0;
    // One micro-batch per step, so that both measured times contain any pause of the machine in this forward pass.
    c.train.micro_batch = 8;
    for (const RankAccount& r : account_of(c, 2).ranks) {
      EXPECT_GT(r.pace.input_pass, 0);
      EXPECT_LT(r.pace.input_pass * 8, r.pace.forward) << "the input pass is part of the forward pass";
    }
  }
}

// The network reads float32 samples in place unless they are normalised.
TEST(StepTiming, HasNoInputPassIfTheSamplesNeedNoConversion) {
  for (const bool normalises : {false, true}) {
    test::LinearRun run(DType::f32, test::targets(1), Loss::mse);
    run.config.data.normalize = normalises;
    run.config.train.steps = 6;
    run.train(2);
    for (const RankAccount& r : Account::from_json(run.summary().at("account").dump()).ranks) {
      EXPECT_EQ(r.pace.input_pass > 0, normalises);
      EXPECT_GT(r.pace.forward, 0);
    }
  }
}

TEST(StepTiming, TimestampsPerStepIncludeThoseOfLoaderAndCollectives) {
  RunConfig c = simulated_run(2);
  c.comm.bucket_size = 4 << 10;
  c.test.compute_delay = 0;
  for (const RankAccount& r : account_of(c, 2).ranks) {
    double spans = 0;
    for (const CollectiveOpStats& s : r.sums) spans += double(s.times);
    EXPECT_GE(spans / double(r.steps), 16);
    EXPECT_GE(double(r.loader.clock_reads), 4.0 * double(r.loader.batches));
    EXPECT_GT(r.marks, 3 * spans / double(r.steps) + double(r.loader.clock_reads) / double(r.steps));
  }
}

TEST(StepTiming, ManyBucketsHaveFewMilestones) {
  RunConfig c = simulated_run(1);
  c.train.micro_batch = 0;
  c.comm.bucket_size = 1024;
  c.train.steps = 6;
  const StepProfile s = step_profile_of(account_of(c, 1));
  EXPECT_LE(s.ready.size(), 16u);
  EXPECT_GE(s.ready.size(), 8u);
  EXPECT_DOUBLE_EQ(s.backward, s.last_backward);
}

}  // namespace step_timing_test
}  // namespace millrace
