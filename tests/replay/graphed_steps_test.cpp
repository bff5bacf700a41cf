// Captured steps give the same results as eager steps, which launch their operations one by one. These tests run on the
// fake GPU and on a real GPU.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "replay/graphed_runs.hpp"

namespace millrace {
namespace graphed_steps_test {

using namespace test;

struct GraphedSteps : QuickRuns {};

void expect_equal(const Outcome& actual, const Outcome& expected, const std::string& what) {
  ASSERT_FALSE(expected.steps.empty());
  ASSERT_FALSE(expected.weights.empty());
  EXPECT_EQ(actual.steps, expected.steps) << what;
  EXPECT_EQ(actual.evaluation, expected.evaluation) << what;
  EXPECT_EQ(actual.weights, expected.weights) << what;
  EXPECT_EQ(actual.moments, expected.moments) << what;
}

TEST_F(GraphedSteps, EqualEagerStepsBitwise) {
  for (const int accumulation : {1, 2, 3, 5}) {
    RunConfig c = graphed_run(accumulation);
    c.cuda.graph = false;
    const Outcome eager = outcome_of(c);
    c.cuda.graph = true;
    for (const int prefetch : {2, 3})
      for (const bool eager_copies : {false, true}) {
        c.data.prefetch = prefetch;
        if (!configure_fake_gpu(true, eager_copies) && eager_copies) continue;
        expect_equal(outcome_of(c), eager,
                     fmt::format("{} accumulated, {} slots, copies {}", accumulation, prefetch, eager_copies));
      }
  }
}

// The step is captured as several groups, and reuses its device slots.
TEST_F(GraphedSteps, SeveralGroupsGiveTheSameBitsAsOne) {
  for (const int accumulation : {3, 5}) {
    RunConfig c = graphed_run(accumulation);
    c.data.prefetch = 3;
    const Outcome whole = outcome_of(c);
    for (const int most : {1, 2, 3}) {
      c.cuda.graph_micro_batches = most;
      for (const bool eager_copies : {false, true}) {
        if (!configure_fake_gpu(true, eager_copies) && eager_copies) continue;
        expect_equal(outcome_of(c), whole, fmt::format("{} accumulated, {} at once", accumulation, most));
      }
    }
  }
}

TEST_F(GraphedSteps, ARunStoppedWithinAnEpochResumesBitwiseEqual) {
  const TemporaryFolder folder;
  RunConfig c = graphed_run(3);
  const Outcome whole = outcome_of(c);
  c.train.steps = 7;  // of 16: three steps into the second epoch
  outcome_of(c, 1, folder.path);
  c.train.steps = 0;
  const Outcome parts = outcome_of(c, 1, folder.path);
  expect_equal(parts, whole, "in two parts");
}

TEST_F(GraphedSteps, SkipAnOverflowAsEagerStepsDo) {
  RunConfig c = graphed_run(3);
  c.run.precision = Precision::fp16;
  c.optim.scale_interval = 4;
  c.test.force_overflow_at = 11;  // in a replayed step
  const Outcome outcome = outcome_of(c);
  ASSERT_GE(outcome.steps.size(), 11u);
  EXPECT_NE(outcome.steps[10].find("skipped true"), std::string::npos) << outcome.steps[10];
  c.cuda.graph = false;
  expect_equal(outcome, outcome_of(c), "fp16");
}

}  // namespace graphed_steps_test
}  // namespace millrace
