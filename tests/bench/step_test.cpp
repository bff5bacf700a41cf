#include "millrace/bench/step.hpp"

#include <gtest/gtest.h>

#include "train/runs.hpp"

namespace millrace {
namespace step_test {

// An epoch has five steps, of which the last is shorter. There are more repeats than full steps in an epoch.
TEST(StepBench, MeasuresAllOperationsAndCompleteStepsOverSeveralEpochs) {
  for (const int ranks : {1, 2})
    run_thread_world(ranks, [](World& world) {
      RunConfig c = test::small_run(true);
      c.train.micro_batch = 8;
      const StepBench bench = bench_step(world, c, 9);
      ASSERT_GE(bench.ops.size(), 5u);
      double sum = 0;
      for (const OpTime& op : bench.ops) {
        EXPECT_LE(bench.peaks.seconds(op.forward), 1.000001 * op.forward_seconds) << op.name << " passes its bound";
        EXPECT_LE(bench.peaks.seconds(op.backward), 1.000001 * op.backward_seconds) << op.name << " passes its bound";
        EXPECT_GT(op.forward_seconds, 0) << op.name;
        EXPECT_GT(op.backward_seconds, 0) << op.name;
        sum += op.forward_seconds + op.backward_seconds;
      }
      EXPECT_NEAR(bench.ops_seconds, sum, 1e-12);
      EXPECT_GT(bench.step_seconds, 0.2 * sum);
      const int micro_batches = 32 / 8 / world.size();
      EXPECT_GT(bench.full_step_seconds, 0.2 * micro_batches * sum)
          << "a step is " << micro_batches << " micro-batches";
      EXPECT_LT(bench.communication_seconds, bench.full_step_seconds);
      EXPECT_GT(bench.without_timestamps_seconds, 0.2 * micro_batches * sum);
    });
}

TEST(StepBench, EndsWhereAnEpochHasOneStep) {
  RunConfig c = test::small_run(false, "20");
  const auto world = solo_world();
  EXPECT_GT(bench_step(*world, c, 3).full_step_seconds, 0);
}

TEST(StepBench, AnOperationThatIsFasterThanTheProbesRaisesThePeaks) {
  Peaks peaks{.product_flops = 100, .convolution_flops = 80, .memory_bytes = 10, .memory_rates = {}, .copy_bytes = 0};
  peaks.memory_rates = {{1e3, 50}, {1e6, 20}, {1e9, 10}};
  EXPECT_EQ(peaks.memory_rate(10), 50);
  EXPECT_EQ(peaks.memory_rate(1e6), 20);
  EXPECT_EQ(peaks.memory_rate(1e12), 10);
  EXPECT_EQ(peaks.seconds({.flops = 1000, .bytes = 2e6}), 1e5);
  peaks.include({.flops = 1000, .bytes = 0}, 5);
  EXPECT_EQ(peaks.best_flops(), 200);
  peaks.include({.flops = 0, .bytes = 2e6}, 5e4);  // 40 B/s: less than what smaller tensors reach
  EXPECT_EQ(peaks.memory_rate(2e6), 40);
  EXPECT_EQ(peaks.memory_rate(1e3), 50);
  EXPECT_EQ(peaks.memory_bytes, 10);
  const Peaks before = peaks;
  peaks.include({.flops = 10, .bytes = 2e6}, 1e6);  // slower than the peaks
  EXPECT_EQ(peaks.str(), before.str());
  peaks.include({.flops = 0, .bytes = 1e10}, 1e8);
  EXPECT_EQ(peaks.memory_bytes, 100);
  EXPECT_EQ(peaks.memory_rate(1), 100) << "smaller tensors are at least as fast";
}

}  // namespace step_test
}  // namespace millrace
