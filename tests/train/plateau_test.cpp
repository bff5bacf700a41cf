// optim.schedule = plateau in a run.
#include <gtest/gtest.h>

#include "train/runs.hpp"

namespace millrace {
namespace plateau_test {

// A learning rate that changes next to nothing, so that no evaluation is better than the first. Three steps an epoch.
RunConfig stuck_run(const test::TemporaryFolder& folder) {
  RunConfig c = test::small_run(false, "96");
  c.run.dir = (folder.path / "run").string();
  c.data.valid = {"synthetic:images:rows=40,shape=9x8x3,classes=4,seed=9"};
  c.optim.lr = 5e-10;
  c.optim.momentum = 0;
  c.optim.weight_decay = 0;
  c.optim.schedule = LrSchedule::plateau;
  c.optim.warmup = 1;
  c.optim.gamma = 0.5;
  c.optim.patience = 1;
  c.train.epochs = 7;
  return c;
}

std::vector<double> rates(const test::TemporaryFolder& folder) {
  std::vector<double> out;
  for (const auto& line : test::metrics_of(folder.path / "run")) out.push_back(line.at("lr").get<double>() / 5e-10);
  return out;
}

TEST(Plateau, TheLearningRateFallsAfterEvaluationsWithoutImprovement) {
  for (const int ranks : {1, 2}) {
    const test::TemporaryFolder folder;
    const RunConfig c = stuck_run(folder);
    run_thread_world(ranks, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); });
    // The evaluations after epochs 2 and 3 are not better than the first one, and so on.
    const std::vector<double> expected{0.25, 0.5, 0.75, 1,   1,    1,    1,    1,    1,    0.5, 0.5,
                                       0.5,  0.5, 0.5,  0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25};
    const std::vector<double> found = rates(folder);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9) << "step " << i + 1;
  }
}

TEST(Plateau, TheLearningRateIsNotBelowItsMinimum) {
  const test::TemporaryFolder folder;
  RunConfig c = stuck_run(folder);
  c.optim.min_lr = 4e-10;
  run_thread_world(1, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); });
  EXPECT_NEAR(rates(folder).back(), 0.8, 1e-9);
}

// The stops are at the ends of epochs, where both runs evaluate, before and after reductions.
TEST(Plateau, AResumedRunEqualsAnUninterruptedOne) {
  const test::TemporaryFolder once, often;
  RunConfig c = stuck_run(once);
  c.optim.lr = 1e-5;  // it learns something, but too slowly
  c.optim.gamma = 0.9;
  c.optim.patience = 0;
  c.train.steps = 21;
  const auto go = [&] { run_thread_world(1, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); }); };
  go();
  c.run.dir = (often.path / "run").string();
  for (const std::int64_t steps : {3, 6, 9, 15, 21}) {
    c.train.steps = steps;
    go();
  }
  const auto a = test::metrics_of(once.path / "run"), b = test::metrics_of(often.path / "run");
  ASSERT_EQ(a.size(), 21u);
  ASSERT_EQ(b.size(), 21u);
  for (std::size_t i = 0; i < a.size(); ++i)
    for (const char* key : {"lr", "loss"}) EXPECT_EQ(a[i].at(key), b[i].at(key)) << key << " of step " << i + 1;
  EXPECT_LT(a.back().at("lr"), a[4].at("lr"));
}

}  // namespace plateau_test
}  // namespace millrace
