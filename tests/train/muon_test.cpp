// Training with optim.name = muon.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "millrace/config/options.hpp"
#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace muon_test {

using test::Tensors;

RunConfig muon_run() {
  RunConfig c = test::small_run(true);
  c.model.layers = {"conv 8 3x3", "batchnorm",  "relu",     "conv 70 3x3",
                    "relu",       "globalpool", "linear 6", "linear outputs"};
  c.optim.name = OptimizerName::muon;
  c.optim.schedule = LrSchedule::constant;
  c.optim.lr = 0.01;
  c.train.micro_batch = 8;
  c.train.steps = 6;
  return c;
}

struct Outcome {
  std::vector<nlohmann::json> metrics;
  Tensors tensors;
};

Outcome outcome(RunConfig c, int ranks, const test::TemporaryFolder& folder = {}) {
  c.run.dir = folder.path.string();
  run_thread_world(ranks, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); });
  return {test::metrics_of(folder.path), test::tensors_of(folder.path)};
}

void expect_same(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.metrics.size(), b.metrics.size());
  for (std::size_t i = 0; i < a.metrics.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "loss_scale", "skipped"})
      EXPECT_EQ(a.metrics[i].at(key), b.metrics[i].at(key)) << key << " of step " << i + 1;
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, values] : a.tensors) EXPECT_TRUE(test::same_bits(values, b.tensors.at(name))) << name;
}

TEST(Muon, OneAndTwoRanksAgree) {
  const auto one = outcome(muon_run(), 1), two = outcome(muon_run(), 2);
  ASSERT_EQ(one.metrics.size(), two.metrics.size());
  for (std::size_t i = 0; i < one.metrics.size(); ++i) {
    const double loss = one.metrics[i].at("loss");
    EXPECT_NEAR(loss, two.metrics[i].at("loss").get<double>(), 1e-4 * loss) << "step " << i + 1;
  }
  RunConfig c = muon_run();
  c.run.reproducible = Reproducible::strict;
  expect_same(outcome(c, 1), outcome(c, 2));
}

TEST(Muon, AResumedRunEqualsAnUninterruptedOne) {
  for (const auto precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    RunConfig c = muon_run();
    c.run.precision = precision;
    c.optim.ema = 0.9;
    c.optim.clip = 0.5;
    c.optim.loss_scale = 1024;
    if (precision == Precision::fp16) c.test.force_overflow_at = 4;
    const Outcome whole = outcome(c, 2);
    EXPECT_EQ(whole.metrics[3].at("skipped"), precision == Precision::fp16);
    const test::TemporaryFolder folder;
    RunConfig part = c;
    part.train.steps = 3;
    outcome(part, 2, folder);
    expect_same(whole, outcome(c, 2, folder));
  }
}

TEST(Muon, OnlyMatricesHaveNoSecondMomentAndGroupsApply) {
  RunConfig c = muon_run();
  c.optim.group = {"linear2.weight muon=off", "conv1.weight freeze=on"};
  const Tensors out = outcome(c, 1).tensors;
  const auto empty = [&](const std::string& name) {
    for (const float v : out.at("/moment2/" + name))
      if (v != 0) return false;
    return true;
  };
  for (const char* name : {"conv1.weight", "conv2.weight", "linear1.weight"}) EXPECT_TRUE(empty(name)) << name;
  for (const char* name : {"batchnorm1.bias", "batchnorm1.weight", "linear1.bias", "linear2.weight"})
    EXPECT_FALSE(empty(name)) << name;
  for (const float v : out.at("/moment1/conv1.weight")) EXPECT_EQ(v, 0);
}

TEST(Muon, ThePlanSaysWhichParametersItUpdates) {
  RunConfig c = muon_run();
  c.optim.group = {"linear2.weight muon=off"};
  const auto world = solo_world();
  EXPECT_NE(describe_plan(*world, c).find("optim.name: muon updates 3 of"), std::string::npos)
      << describe_plan(*world, c);
}

TEST(Muon, WhatCannotWorkIsRefused) {
  const auto refusal = [](RunConfig c) { return test::message_of([&] { outcome(c, 1); }, Exit::config); };
  RunConfig c = muon_run();
  c.optim.name = OptimizerName::adamw;
  c.optim.group = {"conv* muon=off"};
  EXPECT_EQ(refusal(c), "optim.group: conv* has muon=, but optim.name is not muon. remove muon=");
}

TEST(Muon, AResumedRunKeepsTheOptimizer) {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    RunConfig c = muon_run();
    c.text = "[optim]\n" + text;
    return test::message_of([&] { outcome(c, 1, folder); }, Exit::config);
  };
  RunConfig c = muon_run();
  c.train.steps = 3;
  c.text = "[optim]\nname = muon\n";
  outcome(c, 1, folder);
  EXPECT_EQ(refusal("name = adamw\n"),
            "optim.name: the checkpoint is from muon, and its moments are of no use for adamw. restore the key, or set "
            "run.dir to a new folder");
  EXPECT_EQ(
      refusal("name = muon\ngroup = linear2.weight muon=off\n"),
      "optim.group: muon= cannot change, and the checkpoint has no group with muon=. restore these groups, or set "
      "run.dir to a new folder");
}

}  // namespace muon_test
}  // namespace millrace
