// Values that are valid each, but not together.
#include <gtest/gtest.h>

#include "millrace/config/options.hpp"
#include "support/expect_error.hpp"

namespace millrace::app {
namespace combinations_test {

std::string refusal(const std::string& text) {
  return test::message_of([&] { resolve_config({{"a.cfg", text}}, {}); }, Exit::config);
}

TEST(Combinations, ContradictorySizesAndTimesAreRefused) {
  EXPECT_EQ(refusal("train.global_batch = 64\ntrain.micro_batch = 65\n"),
            "train.micro_batch (65) is larger than train.global_batch (64). lower the first or raise the second");
  EXPECT_EQ(refusal("model.name = layers\n"),
            "model.name = layers, but no model.layers is given. write one for each layer");
  EXPECT_EQ(refusal("run.walltime = 2m\nrun.stop_margin = 2m\n"),
            "run.stop_margin is not smaller than run.walltime. lower the first or raise the second");
}

TEST(Combinations, OneCycleHasNeitherWarmUpNorMinimum) {
  EXPECT_EQ(refusal("optim.schedule = one_cycle\noptim.warmup = 1\n"),
            "optim.warmup: optim.schedule = one_cycle has a rise of its own. set optim.warmup = 0, and the length of "
            "the rise with optim.pct_start");
  EXPECT_EQ(refusal("optim.schedule = one_cycle\noptim.min_lr = 1e-5\n"),
            "optim.min_lr: optim.schedule = one_cycle ends at optim.lr / 250000. set optim.min_lr = 0");
}

TEST(Combinations, PlateauNeedsEvaluationsAndAFactorBelowOne) {
  const std::string plateau = "optim.schedule = plateau\n";
  EXPECT_EQ(refusal(plateau),
            "optim.schedule: plateau follows evaluations, but there is no data for them. set data.valid");
  EXPECT_EQ(refusal(plateau + "data.valid = a.h5\ntrain.evaluate = off\n"),
            "optim.schedule: plateau follows evaluations, but train.evaluate = off. set it to on");
  EXPECT_EQ(refusal(plateau + "data.valid = a.h5\noptim.gamma = 1\n"),
            "optim.gamma: optim.schedule = plateau lowers the learning rate. set optim.gamma below 1");
}

TEST(Combinations, PatienceNeedsEvaluations) {
  EXPECT_EQ(refusal("train.evaluate_every = 10\n"),
            "train.evaluate_every: there is nothing to evaluate on. set data.valid");
  EXPECT_EQ(refusal("train.patience = 2\n"), "train.patience: there is nothing to evaluate on. set data.valid");
  EXPECT_EQ(refusal("train.patience = 2\ntrain.evaluate = off\ndata.valid = a.h5\n"),
            "train.patience: train.evaluate = off. set it to on, or train.patience = 0");
}

}  // namespace combinations_test
}  // namespace millrace::app
