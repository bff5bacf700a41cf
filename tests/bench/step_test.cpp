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

}  // namespace step_test
}  // namespace millrace
