// What the program answers to wrong keys and values.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/config/arguments.hpp"
#include "millrace/config/keys.hpp"
#include "support/expect_error.hpp"

namespace millrace::app {
namespace messages_test {

RunConfig from(const std::string& text, const std::vector<Override>& overrides = {}) {
  return resolve_config({{"a.cfg", text}}, overrides);
}
std::string refusal(const std::string& text) {
  return test::message_of([&] { from(text); }, Exit::config);
}
ParsedArguments command_line(const Arguments& arguments) { return parse_arguments(arguments, {config_flag()}, true); }

TEST(Messages, NamesOfOtherProgramsAreAnsweredByTheirMeaning) {
  const auto meant = [](const std::string& written, const std::string& key) {
    EXPECT_EQ(refusal(written + " = 5\n"), "a.cfg:1: unknown key " + written + ". did you mean " + key + "?");
    EXPECT_EQ(test::message_of(
                  [&] {
                    command_line({"--" + written, "5"});
                  },
                  Exit::config),
              "command line: unknown key " + written + ". did you mean --" + key + "?");
  };
  for (const char* name : {"optim.batch-size", "batchSize", "bs"}) meant(name, "train.global_batch");
  for (const char* name : {"model.learning_rate", "data.lr", "learnin_rate", "base_lr"}) meant(name, "optim.lr");
  meant("n_epochs", "train.epochs");
  meant("model.epochs", "train.epochs");
  meant("optimizer", "optim.name");
  meant("model.weight_decay", "optim.weight_decay");
  meant("dropout", "model.dropout");
  meant("data.num_workers", "data.workers");
  meant("max_grad_norm", "optim.clip");
  EXPECT_EQ(refusal("model.num_classes = 10\n"),
            "a.cfg:1: unknown key model.num_classes. the classes are counted in the data. remove it");
  for (const Key& key : keys()) EXPECT_TRUE(key.hidden() || nearest_key(key.name + "_") == key.name) << key.name;
}

TEST(Messages, OneDashIsAnsweredWithTwo) {
  const auto refused = [](const Arguments& arguments) {
    return test::message_of([&] { command_line(arguments); }, Exit::config);
  };
  for (const char* written : {"-train.epochs", "-comm.timeout", "-checkpoint.evry"})
    EXPECT_EQ(refused({written, "5"}),
              fmt::format("command line: {}: an option begins with two dashes. write -{}", written, written));
  EXPECT_EQ(refused({"-train.epochs=5"}),
            "command line: -train.epochs=5: an option begins with two dashes. write --train.epochs");
  EXPECT_EQ(refused({"-config", "a"}), "command line: -config: an option begins with two dashes. write --config");
  EXPECT_EQ(refused({"-lr", "5"}), "command line: -lr: an option begins with two dashes. write --lr");
  EXPECT_EQ(command_line({"-ca.cfg", "--data.offset", "-1"}).list("config"), std::vector<std::string>{"a.cfg"});
}

TEST(Messages, LaterErrorsGetThePlaceOfTheirKey) {
  const auto placed = [](const std::string& message) { return with_place(message); };
  const std::string combination = refusal("[train]\nglobal_batch = 4\nmicro_batch = 8\n");
  EXPECT_EQ(placed(combination), "a.cfg:3: " + combination);
  from(
      "[model]\nname = layers\nlayers = relu\nlayers = conv 8 as=c\nlayers = relu\n[data]\ncrop_pad = "
      "3\nrandom_resized_crop = 0.5\n",
      {{"optim.lr", {"1"}}});
  EXPECT_EQ(placed("data.crop_pad: too large"), "a.cfg:7: data.crop_pad: too large");
  EXPECT_EQ(placed("data.random_resized_crop = 0.5 is"), "a.cfg:8: data.random_resized_crop = 0.5 is");
  EXPECT_EQ(placed("model.layers: `conv 8 as=c`: no"), "a.cfg:4: model.layers: `conv 8 as=c`: no");
  EXPECT_EQ(placed("model.layers: nobody reads 'c'"), "a.cfg:4: model.layers: nobody reads 'c'");
  EXPECT_EQ(placed("model.layers: `relu`: no"), "a.cfg:3 or 5: model.layers: `relu`: no");
  for (const char* other :
       {"optim.lr: from the command line", "train.epochs: from nowhere", "out of memory", "", "data"})
    EXPECT_EQ(placed(other), other);
  resolve_config({{"a.cfg", "train.epochs = 1\n\ntrain.steps = 2"}, {"b.cfg", "\ntrain.epochs = 3"}},
                 {{"train.steps", {"4"}}});
  EXPECT_EQ(placed("train.epochs"), "b.cfg:2: train.epochs");
  EXPECT_EQ(placed("train.steps"), "train.steps");
}

TEST(Messages, SwitchesAndWordsMayHaveCapitalLetters) {
  for (const char* on : {"on", "On", "ON", "true", "True", "TRUE", "yes", "Yes", "1"})
    EXPECT_TRUE(from(fmt::format("data.augment = {}", on)).data.augment) << on;
  for (const char* off : {"off", "Off", "false", "False", "no", "NO", "0"})
    EXPECT_FALSE(from(fmt::format("train.evaluate = {}", off)).train.evaluate) << off;
  EXPECT_EQ(from("optim.name = AdamW\n").optim.name, OptimizerName::adamw);
  EXPECT_EQ(refusal("data.augment = maybe\n"), "a.cfg:1: data.augment: 'maybe' is not one of on|off");
}

TEST(Messages, HelpHasTheCommonKeysUnlessAllAreAskedFor) {
  const std::string common = keys_help();
  EXPECT_NE(common.find("--train.global_batch <"), common.npos);
  EXPECT_EQ(common.find("--optim.muon_steps <"), common.npos);
  EXPECT_NE(common.find("\n--help-all prints "), common.npos);
  EXPECT_LT(std::count(common.begin(), common.end(), '\n'), 120);
  print_all_keys_in_help();
  const std::string all = keys_help();
  EXPECT_EQ(all.find("--help-all"), all.npos);
  for (const Key& key : keys())
    EXPECT_EQ(all.find(fmt::format("--{} <", key.name)) == all.npos, key.hidden()) << key.name;
}

}  // namespace messages_test
}  // namespace millrace::app
