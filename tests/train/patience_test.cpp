// When a run evaluates (train.evaluate_every), and when it ends because nothing improves (train.patience).
#include <gtest/gtest.h>

#include "millrace/base/files.hpp"
#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace patience_test {

using nlohmann::json;

struct EvaluatedRun : test::TemporaryFolder {
  RunConfig config = test::small_run(false, "96");  // three steps an epoch
  EvaluatedRun() {
    config.run.dir = (path / "run").string();
    config.data.valid = {"synthetic:images:rows=40,shape=9x8x3,classes=4,seed=9"};
    config.train.epochs = 4;
  }
  // Returns what it printed.
  std::string train(int ranks = 1) const {
    testing::internal::CaptureStdout();
    run_thread_world(ranks, [&](World& world) { EXPECT_EQ(millrace::train(world, config), Exit::ok); });
    return testing::internal::GetCapturedStdout();
  }
  json summary() const { return json::parse(read_file(path / "run" / "summary.json")); }
  std::vector<json> metrics() const { return test::metrics_of(path / "run"); }
  std::vector<std::int64_t> evaluated_steps() const {
    std::vector<std::int64_t> steps;
    std::ifstream in(path / "run" / "validation.jsonl");
    for (std::string line; std::getline(in, line);) steps.push_back(json::parse(line).at("step"));
    return steps;
  }
};

TEST(EvaluateEvery, EvaluatesAfterSoManyStepsInAdditionToEveryEpoch) {
  for (const int ranks : {1, 2}) {
    EvaluatedRun plain, run;
    run.config.train.evaluate_every = 4;
    run.config.train.steps = plain.config.train.steps = 11;
    plain.train(ranks);
    run.train(ranks);
    EXPECT_EQ(plain.evaluated_steps(), (std::vector<std::int64_t>{3, 6, 9, 11}));
    EXPECT_EQ(run.evaluated_steps(), (std::vector<std::int64_t>{3, 4, 6, 8, 9, 11}));
    for (std::size_t i = 0; i < 11; ++i)  // an evaluation does not change the training
      EXPECT_EQ(run.metrics().at(i).at("loss"), plain.metrics().at(i).at("loss")) << i;
  }
}

TEST(EvaluateEvery, CountsTheStepsOfTheRunAlsoAfterResuming) {
  EvaluatedRun run;
  run.config.train.evaluate_every = 5;
  run.config.train.steps = 7;
  run.train();
  run.config.train.steps = 11;
  run.train();
  EXPECT_EQ(run.evaluated_steps(), (std::vector<std::int64_t>{3, 5, 6, 7, 9, 10, 11}));
}

// With a learning rate of 0 no evaluation is better than the first.
struct StuckRun : EvaluatedRun {
  StuckRun() {
    config.optim.lr = 0;
    config.train.evaluate_every = 1;
    config.train.patience = 3;
  }
};

TEST(Patience, TheRunEndsWhenSoManyEvaluationsHaveNotImproved) {
  for (const int ranks : {1, 2})
    for (const auto metric : {BestMetric::loss, BestMetric::accuracy, BestMetric::macro_f1}) {
      StuckRun run;
      run.config.checkpoint.best = metric;
      const std::string said = run.train(ranks);
      EXPECT_NE(said.find(metric == BestMetric::loss
                              ? "ended at step 4 of 12: the validation loss has not improved for 3 evaluations "
                                "(train.patience). the best was "
                          : metric == BestMetric::accuracy
                              ? "ended at step 4 of 12: the validation accuracy has not improved for 3 evaluations"
                              : "ended at step 4 of 12: the validation macro_f1 has not improved for 3 evaluations"),
                said.npos)
          << said;
      EXPECT_NE(said.find(" at step 1\n"), said.npos) << said;
      EXPECT_EQ(run.metrics().size(), 4u);
      EXPECT_EQ(run.summary().at("status"), "finished");
      EXPECT_EQ(run.summary().at("steps"), 4);
      EXPECT_EQ(CheckpointStore::list(run.path / "run" / "checkpoints").back().stem(), "step-00000004");
    }
}

TEST(Patience, AResumedRunContinuesTheCount) {
  StuckRun run;
  run.config.train.steps = 2;
  EXPECT_EQ(run.train().find("ended at step"), std::string::npos);
  run.config.train.steps = 0;
  EXPECT_NE(run.train().find("ended at step 4 of 12"), std::string::npos);
  EXPECT_EQ(run.metrics().size(), 4u);
}

TEST(Patience, AnEndedRunTrainsOnOnlyWithMorePatience) {
  StuckRun run;
  run.train();
  const std::string summary = read_file(run.path / "run" / "summary.json");
  const std::string said = run.train();
  EXPECT_NE(said.find("finished: nothing trained. the run ended at step 4 of 12: the validation loss has not improved "
                      "for 3 evaluations (train.patience). the best was "),
            said.npos)
      << said;
  EXPECT_EQ(read_file(run.path / "run" / "summary.json"), summary);
  run.config.train.patience = 5;
  EXPECT_NE(run.train().find("ended at step 6 of 12"), std::string::npos);
  run.config.train.patience = 0;
  run.train();
  EXPECT_EQ(run.metrics().size(), 12u);
}

TEST(Patience, AnotherMetricBeginsANewCount) {
  StuckRun run;
  run.train();
  run.config.checkpoint.best = BestMetric::accuracy;
  EXPECT_NE(run.train().find("ended at step 8 of 12: the validation accuracy"), std::string::npos);
}

TEST(Patience, ARunThatImprovesIsNotEnded) {
  EvaluatedRun run;
  run.config.data.train = run.config.data.valid = {"synthetic:images:rows=96,shape=9x8x3,classes=4"};
  run.config.data.augment = false;
  run.config.optim.lr = 1e-3;  // small enough that the loss falls in every epoch
  run.config.train.patience = 1;
  EXPECT_EQ(run.train().find("ended at step"), std::string::npos);
  EXPECT_EQ(run.metrics().size(), 12u);
}

}  // namespace patience_test
}  // namespace millrace
