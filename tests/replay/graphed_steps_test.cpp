// Whole steps as one recording give what their operations give one by one. On the stand-in for a GPU, and on a GPU.
#include <gtest/gtest.h>

#include "replay/graphed_runs.hpp"

namespace millrace {
namespace {

using namespace test;

struct GraphedSteps : QuickRuns {};

void expect_equal_without_graph(RunConfig c, int ranks, const std::string& what) {
  c.cuda.graph = true;
  const Outcome graphed = outcome_of(c, ranks);
  c.cuda.graph = false;
  const Outcome eager = outcome_of(c, ranks);
  ASSERT_FALSE(eager.steps.empty());
  ASSERT_FALSE(eager.weights.empty());
  EXPECT_EQ(graphed.steps, eager.steps) << what;
  EXPECT_EQ(graphed.evaluation, eager.evaluation) << what;
  EXPECT_EQ(graphed.weights, eager.weights) << what;
  EXPECT_EQ(graphed.moments, eager.moments) << what;
}

TEST_F(GraphedSteps, EqualStepsOneByOneInEveryBit) {
  for (const int accumulation : {1, 2, 3, 5})
    for (const int prefetch : {2, 3}) {
      RunConfig c = graphed_run(accumulation);
      c.data.prefetch = prefetch;
      expect_equal_without_graph(c, 1, cat(accumulation, " accumulated, ", prefetch, " slots"));
    }
}

// Two or three slots on the device, used again within the step, and a recording for each part of it.
TEST_F(GraphedSteps, InPartsGiveTheSameBits) {
  for (const int accumulation : {3, 5}) {
    RunConfig c = graphed_run(accumulation);
    c.data.prefetch = 3;
    const Outcome whole = outcome_of(c);
    for (const int most : {1, 2, 3}) {
      c.cuda.graph_batches = most;
      EXPECT_EQ(outcome_of(c), whole) << accumulation << " accumulated, " << most << " at once";
    }
  }
}

TEST_F(GraphedSteps, ARunThatEndsWithinAnEpochGoesOnBitForBit) {
  const Folder folder;
  RunConfig c = graphed_run(3);
  const Outcome whole = outcome_of(c);
  c.train.steps = 7;  // of 16: three into the second epoch
  outcome_of(c, 1, folder.path);
  c.train.steps = 0;
  const Outcome parts = outcome_of(c, 1, folder.path);
  EXPECT_EQ(parts.steps, whole.steps);
  EXPECT_EQ(parts.evaluation, whole.evaluation);
  EXPECT_EQ(parts.weights, whole.weights);
  EXPECT_EQ(parts.moments, whole.moments);
}

TEST_F(GraphedSteps, SkipAnOverflowAsStepsOneByOneDo) {
  RunConfig c = graphed_run(3);
  c.run.precision = Precision::fp16;
  c.optim.scale_interval = 4;
  c.train.test_force_overflow_at = 11;  // from a replay
  const Outcome outcome = outcome_of(c);
  ASSERT_GE(outcome.steps.size(), 11u);
  EXPECT_NE(outcome.steps[10].find("skipped true"), std::string::npos) << outcome.steps[10];
  expect_equal_without_graph(c, 1, "fp16");
}

}  // namespace
}  // namespace millrace
