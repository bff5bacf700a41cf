// How many graph launches a step takes, and that ranks with unequal shares communicate in the same captured groups.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "replay/graphed_runs.hpp"
#include "support/fake_gpu.hpp"

namespace millrace {

bool test::configure_fake_gpu(bool quick, bool eager_copies) {
  fake_gpu().kernels = !quick;
  fake_gpu().eager_copies = eager_copies;
  return true;
}

namespace launches_test {

using namespace test;

struct GraphedLaunches : QuickRuns {};

struct Counts {
  int launches = 0, captures = 0, operations = 0;
};
Counts counts_of(const RunConfig& c, int ranks = 1) {
  const auto now = [] { return Counts{fake_gpu().launches, fake_gpu().captures, fake_gpu().operations}; };
  const Counts before = now();
  outcome_of(c, ranks);
  const Counts after = now();
  return {after.launches - before.launches, after.captures - before.captures, after.operations - before.operations};
}

// The first run of each captured step is eager. There are two captured steps, one for each parity.
TEST_F(GraphedLaunches, AStepIsOneLaunchAtAnyAccumulation) {
  for (const int accumulation : {1, 2, 3, 5})
    for (const int prefetch : {2, 3}) {
      RunConfig c = graphed_run(accumulation);
      c.data.train = {fmt::format("synthetic:images:rows={},shape=6x5x3,classes=4", 4 * 4 * accumulation)};
      c.train.evaluate = false;
      c.data.prefetch = prefetch;
      const Counts graphed = counts_of(c);
      c.cuda.graph = false;
      const Counts eager = counts_of(c);
      EXPECT_EQ(graphed.launches, 16 - 2) << accumulation << " accumulated, " << prefetch << " slots";
      EXPECT_EQ(graphed.captures, 2);
      EXPECT_EQ(eager.launches, 0);
      EXPECT_EQ(graphed.operations, eager.operations / 16 * 2) << "only steps 1 and 2 are eager";
    }
}

TEST_F(GraphedLaunches, AStepLargerThanAGraphUsesTheFewestLaunches) {
  RunConfig c = graphed_run(5);
  c.data.train = {"synthetic:images:rows=80,shape=6x5x3,classes=4"};
  c.train.evaluate = false;
  for (const auto& [most, parts] : {std::pair{1, 5}, {2, 3}, {3, 2}, {4, 2}, {5, 1}}) {
    c.cuda.graph_micro_batches = most;
    EXPECT_EQ(counts_of(c).launches, (16 - 2) * parts) << most;
  }
}

// Short steps have both parities, so each recurs in every second epoch. An evaluation has two full micro-batches in
// each of two device slots, and a shorter last one.
TEST_F(GraphedLaunches, ShortStepsAndEvaluationsAreCapturedWhenTheyRecur) {
  RunConfig c = graphed_run(3);
  c.data.train = {"synthetic:images:rows=30,shape=6x5x3,classes=4"};  // two full steps and one of 6 rows
  c.data.valid = {"synthetic:images:rows=18,shape=6x5x3,classes=4"};
  c.train.epochs = 6;
  const Counts counts = counts_of(c);
  const int steps = 6 * 3 - 2 * 2, evaluations = 6 * 5 - 3;
  EXPECT_EQ(counts.launches, steps + evaluations);
  EXPECT_EQ(counts.captures, 4 + 3);
}

// The fake GPU fails if ranks replay an all-reduce from different captures. The ranks have 6 and 7 micro-batches, and 0
// and 1 in the last step of an epoch.
TEST_F(GraphedLaunches, RanksWithUnequalSharesReplayTheSameCaptures) {
  RunConfig c = graphed_run(13);
  c.data.train = {"synthetic:images:rows=107,shape=6x5x3,classes=4"};
  c.train.evaluate = false;
  c.train.epochs = 6;
  for (const int zero : {0, 1}) {
    c.optim.zero = zero;
    // Each rank has one graph for each kind of step and parity; a full step in two groups has two.
    for (const auto& [most, parts] : {std::pair{16, 1}, {4, 2}}) {
      c.cuda.graph_micro_batches = most;
      const Counts counts = counts_of(c, 2);
      EXPECT_EQ(counts.launches, 2 * ((12 - 2) * parts + (6 - 2))) << "zero " << zero << ", " << most << " at once";
      EXPECT_EQ(counts.captures, 2 * (2 * parts + 2));
    }
    // Full steps have two groups on one rank and three on the other, so only groups without communication are captured.
    // With ZeRO the first group communicates too, because it all-gathers the weights.
    c.cuda.graph_micro_batches = 3;
    EXPECT_EQ(counts_of(c, 2).launches, (12 - 2) * (zero ? 1 : 3) + 2 * (6 - 2)) << "zero " << zero;
  }
}

TEST_F(GraphedLaunches, UnequalSharesGiveTheSameBitsWithAndWithoutCapture) {
  RunConfig c = graphed_run(13);
  c.data.train = {"synthetic:images:rows=107,shape=6x5x3,classes=4"};
  c.cuda.graph = false;
  const Outcome eager = outcome_of(c, 2);
  c.cuda.graph = true;
  for (const int zero : {0, 1})
    for (const int most : {3, 4, 16}) {
      c.optim.zero = zero;
      c.cuda.graph_micro_batches = most;
      EXPECT_EQ(outcome_of(c, 2), eager) << "zero " << zero << ", " << most << " at once";
    }
}

// When the shares change, all ranks must drop the steps that were captured for the old shares.
TEST_F(GraphedLaunches, StepsAreCapturedAgainAfterSharesChangeAndGiveTheSameBits) {
  const TemporaryFolder folder;
  const std::string shares = (folder.path / "shares.jsonl").string();
  std::ofstream(shares) << "{\"step\":1,\"micro_batches\":[6,7]}\n{\"step\":4,\"micro_batches\":[11,2]}\n"
                           "{\"step\":9,\"micro_batches\":[1,12]}\n";
  RunConfig c = graphed_run(13);
  c.data.train = {"synthetic:images:rows=107,shape=6x5x3,classes=4"};
  c.train.epochs = 4;
  c.train.balance = shares;
  c.cuda.graph = false;
  const Outcome eager = outcome_of(c, 2);
  c.cuda.graph = true;
  for (const auto& [zero, most] : {std::pair{0, 3}, {1, 16}}) {
    c.optim.zero = zero;
    c.cuda.graph_micro_batches = most;
    EXPECT_EQ(outcome_of(c, 2), eager) << "zero " << zero << ", " << most << " at once";
  }
}

// Copies run when the step waits for them here. Their time must be counted as copying, not as waiting for the loader or
// as computation.
TEST_F(GraphedLaunches, WaitingForCopiesIsAPhaseOfItsOwn) {
  constexpr double each = 0.003;
  fake_gpu().copy_seconds = each;
  for (const bool graph : {false, true}) {
    const TemporaryFolder folder;
    RunConfig c = graphed_run(2);
    c.cuda.graph = graph;
    c.data.valid.clear();
    c.checkpoint.every = "none";
    c.run.dir = folder.path.string();
    run_thread_world(1, [&](World& world) { train(world, c); });
    std::ifstream in(folder.path / "summary.json");
    const auto j = nlohmann::json::parse(in);
    const auto& phases = j["account"]["phases"];
    const double steps = j["account"]["ranks"][0]["steps"], copy = phases["copy"]["max"];
    EXPECT_GT(copy, 0.3 * each * steps) << phases;  // some copies run while the host waits for a slot
    EXPECT_GT(copy, 3 * double(phases["data_wait"]["max"])) << phases;
  }
  fake_gpu().copy_seconds = 0;
}

}  // namespace launches_test
}  // namespace millrace
