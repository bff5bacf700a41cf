// optim.group: learning rate, weight decay and freezing by the name of a parameter.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/config/keys.hpp"
#include "millrace/config/parameter_group.hpp"
#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace groups_test {

using test::same_bits;
using test::Tensors;

RunConfig grouped_run(const std::vector<std::string>& groups, const std::string& optimizer = "sgd") {
  RunConfig c = test::small_run(true);
  c.model.layers = {"conv 8 3x3", "batchnorm", "relu", "conv 12 3x3",   "relu",
                    "globalpool", "linear 6",  "relu", "linear outputs"};
  find_key("optim.name")->set(c, {optimizer});
  find_key("optim.group")->set(c, groups);
  c.optim.schedule = LrSchedule::constant;
  c.optim.weight_decay = 0.125;
  c.comm.bucket_size = 4096;
  c.train.micro_batch = 8;
  c.train.steps = 3;
  return c;
}

// The tensors of the last checkpoint.
Tensors trained(RunConfig c, int ranks = 1) {
  const test::TemporaryFolder folder;
  c.run.dir = folder.path.string();
  run_thread_world(ranks, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); });
  return test::tensors_of(folder.path);
}

void expect_same(const Tensors& a, const Tensors& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) EXPECT_TRUE(same_bits(values, b.at(name))) << what << ": " << name;
}

Tensors initial() {
  RunConfig c = grouped_run({});
  c.optim.lr = 0;
  c.train.steps = 1;
  return trained(c);
}

TEST(Groups, FrozenParametersStayBitwiseUnchanged) {
  const Tensors before = initial();
  const std::vector<std::string> frozen = {"conv1.weight", "batchnorm1.bias", "linear1.weight"};
  for (const char* optimizer : {"sgd", "adamw", "lars", "lamb"})
    for (const int zero : {0, 1})
      for (const int ranks : {1, 2})
        for (const auto precision : {Precision::fp32, Precision::bf16}) {
          RunConfig c =
              grouped_run({"conv1.* freeze=on", "batchnorm1.bias freeze=on", "linear1.weight freeze=on"}, optimizer);
          c.optim.zero = zero;
          c.optim.clip = 0.5;
          c.run.precision = precision;
          const Tensors after = trained(c, ranks);
          for (const auto& [name, values] : before) {
            if (!name.starts_with("/parameters/")) continue;
            const std::string leaf = name.substr(std::string("/parameters/").size());
            const bool stays = std::find(frozen.begin(), frozen.end(), leaf) != frozen.end();
            EXPECT_EQ(same_bits(values, after.at(name)), stays)
                << name << ", " << optimizer << ", zero " << zero << ", " << ranks << " ranks, precision "
                << value_text(c, "run.precision");
            if (!stays) continue;
            for (const float moment : after.at("/moment1/" + leaf)) ASSERT_EQ(moment, 0) << name;
          }
        }
}

// Powers of two, so that the products are exact.
TEST(Groups, AFactorForAllParametersIsThatFactorOnTheLearningRate) {
  for (const char* optimizer : {"sgd", "adamw", "lars", "lamb"}) {
    RunConfig half = grouped_run({}, optimizer);
    half.optim.lr /= 2;
    expect_same(trained(grouped_run({"* lr=0.5"}, optimizer)), trained(half), optimizer);
  }
}

TEST(Groups, WeightDecayReplacesThatOfTheOptimizerAndTheLastPatternCounts) {
  for (const char* optimizer : {"sgd", "adamw", "lars", "lamb"})
    for (const int zero : {0, 1}) {
      RunConfig plain = grouped_run({}, optimizer);
      plain.optim.weight_decay = 0.25;
      RunConfig c =
          grouped_run({"* weight_decay=0.25", "*.bias weight_decay=0", "batchnorm?.weight weight_decay=0"}, optimizer);
      c.optim.zero = zero;
      expect_same(trained(c, 2), trained(plain, 2), optimizer);
    }
}

TEST(Groups, OnlyTheMatchedParametersDiffer) {
  const auto one_step = [](const std::vector<std::string>& groups) {
    RunConfig c = grouped_run(groups);
    c.optim.momentum = 0;
    c.train.steps = 1;
    return trained(c);
  };
  const Tensors before = initial();
  const Tensors plain = one_step({});
  const Tensors grouped = one_step({"conv2.weight lr=3", "linear1.bias weight_decay=0.5"});
  for (const auto& [name, values] : plain) {
    const auto& start = before.at(name);
    const auto& others = grouped.at(name);
    if (name == "/parameters/conv2.weight")
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(others[i] - start[i], 3 * (values[i] - start[i]), 1e-6) << i;
    else if (name == "/parameters/linear1.bias")
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(others[i] - values[i], -0.05 * 0.5 * start[i], 1e-6) << i;
    else
      EXPECT_TRUE(same_bits(values, others)) << name;
  }
}

TEST(Groups, AFrozenParameterCanBeReleasedByALaterPattern) {
  expect_same(trained(grouped_run({"* freeze=on", "linear* freeze=off"})),
              trained(grouped_run({"conv* freeze=on", "batchnorm* freeze=on"})), "all but linear");
}

TEST(Groups, PatternsWithoutAnEffectAreRefused) {
  const auto refusal = [](const std::vector<std::string>& groups) {
    return test::message_of([&] { trained(grouped_run(groups)); }, Exit::config);
  };
  EXPECT_EQ(refusal({"conv9.* lr=2"}),
            "optim.group: conv9.* matches no parameter. correct the pattern; parameters are conv1.weight, "
            "batchnorm1.weight, batchnorm1.bias, linear1.weight, linear1.bias, linear2.bias and 2 more");
  EXPECT_EQ(refusal({"*.weight freeze=on", "*.bias freeze=on"}),
            "optim.group: all parameters are frozen, so there is nothing to train. set freeze=off for some");
}

TEST(Groups, TextIsParsedOrRefusedWithTheReason) {
  const ParameterGroup g = ParameterGroup::parse("layer1.*.weight  lr=1e-2 weight_decay=0");
  EXPECT_EQ(g.pattern, "layer1.*.weight");
  EXPECT_EQ(g.lr, 0.01);
  EXPECT_EQ(g.weight_decay, 0.0);
  EXPECT_FALSE(g.freeze.has_value());
  EXPECT_TRUE(g.matches("layer1.0.conv1.weight"));
  EXPECT_FALSE(g.matches("layer1.0.conv1.bias"));
  EXPECT_EQ(ParameterGroup::parse("lm_head.* muon=off").muon, false);
  EXPECT_TRUE(ParameterGroup::parse("[ab]? freeze=on").matches("b1"));
  const auto refusal = [](const std::string& text) {
    return test::message_of([&] { ParameterGroup::parse(text); }, Exit::config);
  };
  EXPECT_EQ(refusal("fc.*"), "'fc.*' changes nothing. add lr=, weight_decay=, muon=off or freeze=on");
  EXPECT_EQ(refusal("lr=1 fc.*"),
            "'lr=1 fc.*': write one pattern of parameter names, then lr=, weight_decay=, muon= or freeze=");
  EXPECT_EQ(refusal("fc conv lr=1"),
            "'fc conv lr=1': write one pattern of parameter names, then lr=, weight_decay=, muon= or freeze=");
  EXPECT_EQ(refusal("fc rate=1"), "'fc rate=1': rate=1: unknown property. use lr=, weight_decay=, muon= or freeze=");
  EXPECT_EQ(refusal("fc lr=-1"), "'fc lr=-1': lr=-1: '-1' is out of range (must be at least 0)");
  EXPECT_EQ(refusal("fc freeze=yes"), "'fc freeze=yes': freeze=yes: 'yes' is not one of on|off");
  EXPECT_EQ(refusal("fc lr=2 freeze=on"),
            "'fc lr=2 freeze=on': a frozen parameter has neither a learning rate nor weight decay. remove lr= and "
            "weight_decay=, or freeze=on");
}

}  // namespace groups_test
}  // namespace millrace
