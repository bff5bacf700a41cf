// Which settings may change when a run is resumed, and which checkpoint counts as the best.
#include "train/resume.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "millrace/base/files.hpp"
#include "millrace/config/options.hpp"
#include "millrace/train/checkpoint/describe_checkpoint.hpp"
#include "millrace/train/session/epochs.hpp"
#include "support/expect_error.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace resume_test {

using nlohmann::json;

struct TemporaryFolder : test::TemporaryFolder {
  RunConfig config = test::small_run(true, "96");
  TemporaryFolder() {
    config.run.dir = (path / "run").string();
    config.train.epochs = 3;
  }
  void train(int ranks = 1) const {
    run_thread_world(ranks, [&](World& world) { millrace::train(world, config); });
  }
  std::vector<json> lines() const { return test::metrics_of(path / "run"); }
  json summary() const { return json::parse(std::ifstream(path / "run" / "summary.json")); }
  void stop_after(std::int64_t steps) {
    config.train.steps = steps;
    train();
    config.train.steps = 0;
  }
};

TEST(Epochs, CountFromTheirOrigin) {
  const Epochs plain{100, 30, {}};
  EXPECT_EQ(plain.steps_per_epoch(), 4);
  EXPECT_EQ(plain.epoch(7), 1);
  EXPECT_EQ(plain.step_in_epoch(7), 3);
  EXPECT_EQ(plain.samples(6), 190);
  EXPECT_EQ(plain.samples(7), 200);  // the last step of an epoch is short
  EXPECT_EQ(plain.even(7), 7);
  const Epochs later{100, 50, {8, 2, 200}};  // two epochs of four steps, then of two
  EXPECT_EQ(later.epoch(8), 2);
  EXPECT_EQ(later.step_in_epoch(9), 1);
  EXPECT_EQ(later.samples(8), 250);
  EXPECT_EQ(later.samples(11), 400);
  EXPECT_EQ(later.even(8), 4);
}

TEST(Resume, AnotherGlobalBatchInTheMiddleOfAnEpochIsRefused) {
  TemporaryFolder run;
  run.stop_after(4);  // an epoch has three steps
  run.config.train.global_batch = 48;
  for (const int ranks : {1, 2})
    test::expect_error(Exit::config, "another train.global_batch (32 then, 48 now)", [&] { run.train(ranks); });
  EXPECT_EQ(run.lines().size(), 4u);  // no line is lost
  run.config.train.global_batch = 32;
  run.train();
  EXPECT_EQ(run.lines().size(), 9u);
}

TEST(Resume, AnotherDataSetInTheMiddleOfAnEpochIsRefused) {
  TemporaryFolder run;
  run.stop_after(4);
  run.config.data.train = {"synthetic:images:rows=192,shape=9x8x3,classes=4"};
  EXPECT_THROW(run.train(), Error);
}

TEST(Resume, AnotherGlobalBatchAtTheStartOfAnEpochContinuesWithThatEpoch) {
  TemporaryFolder run, reference;
  run.stop_after(3);
  run.config.train.global_batch = 48;
  run.train();
  const auto lines = run.lines();
  ASSERT_EQ(lines.size(), 7u);  // one epoch of 3 steps, two epochs of 2
  const std::int64_t epochs[] = {0, 0, 0, 1, 1, 2, 2}, samples[] = {32, 64, 96, 144, 192, 240, 288};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(lines[i].at("step"), std::int64_t(i + 1));
    EXPECT_EQ(lines[i].at("epoch"), epochs[i]);
    EXPECT_EQ(lines[i].at("samples"), samples[i]);
  }
  // The learning rate is that of a run whose epochs all have two steps.
  reference.config.train.global_batch = 48;
  reference.train();
  for (std::size_t i = 3; i < 7; ++i) EXPECT_EQ(lines[i].at("lr"), reference.lines()[i - 1].at("lr"));
}

TEST(Resume, AfterAChangeOfTheGlobalBatchResumingIsExact) {
  TemporaryFolder once, twice;
  for (TemporaryFolder* run : {&once, &twice}) {
    run->config.optim.schedule = LrSchedule::constant;
    run->stop_after(3);
    run->config.train.global_batch = 48;
  }
  once.train();
  twice.stop_after(4);
  twice.train();
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(once.lines().at(i).at("loss"), twice.lines().at(i).at("loss")) << i;
}

TEST(Resume, AFinishedRunKeepsItsSummary) {
  TemporaryFolder run;
  run.config.data.valid = {"synthetic:images:rows=40,shape=9x8x3,classes=4,seed=9"};
  run.stop_after(2);
  EXPECT_EQ(run.summary().at("status"), "finished");
  run.train();
  const json first = run.summary();
  EXPECT_EQ(first.at("steps"), 9);
  EXPECT_EQ(first.at("session_steps"), 7);
  EXPECT_EQ(first.at("session_samples"), 3 * 96 - 64);
  EXPECT_GT(first.at("samples_per_second"), 0);
  run.train();
  EXPECT_EQ(run.summary(), first);
}

TEST(Resume, AFinishedRunIsNotWrittenAgain) {
  TemporaryFolder run;
  run.train();
  const auto contents = [&] {
    std::map<std::string, std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run.path / "run"))
      if (entry.is_regular_file()) out[entry.path().string()] = read_file(entry.path());
    return out;
  };
  const auto before = contents();
  run.config.optim.lr = 0.5;
  for (const double epochs : {3.0, 2.0, 0.0}) {
    run.config.train.epochs = epochs;
    run.train(2);
    EXPECT_EQ(contents(), before) << epochs << " epochs";
  }
}

// A run may be killed after its last checkpoint got its name and before `latest` did.
TEST(Resume, TheNameOfTheNewestCheckpointIsCorrected) {
  TemporaryFolder run;
  run.train();
  const std::string note = run.path / "run/checkpoints/latest", name = read_file(note);
  for (const char* wrong : {"step-00000003.h5\n", "", "..\n"}) {
    std::ofstream(note) << wrong;
    run.train();
    EXPECT_EQ(read_file(note), name);
  }
  std::filesystem::remove(note);
  run.train();
  EXPECT_EQ(read_file(note), name);
}

TEST(Resume, AnotherFunctionIsRefusedAndNothingIsWritten) {
  TemporaryFolder run;
  run.stop_after(3);
  const std::string config = read_file(run.path / "run/config.cfg");
  const auto refused = [&](const char* difference, auto change) {
    const RunConfig kept = run.config;
    change(run.config);
    for (const int ranks : {1, 2}) test::expect_error(Exit::config, difference, [&] { run.train(ranks); });
    run.config = kept;
  };
  auto layer = std::find(run.config.model.layers.begin(), run.config.model.layers.end(), "relu");
  ASSERT_NE(layer, run.config.model.layers.end());
  const auto at = layer - run.config.model.layers.begin();
  refused("'tanh1 = activation(", [&](RunConfig& c) { c.model.layers[std::size_t(at)] = "tanh"; });
  refused("'relu1 = activation(", [&](RunConfig& c) { c.model.layers.erase(c.model.layers.begin() + at); });
  refused("scale=", [](RunConfig& c) { c.data.normalize = false; });
  refused("mean=1 1 1, std=2 2 2", [](RunConfig& c) {
    c.data.mean = {1, 1, 1};
    c.data.std = {2, 2, 2};
  });
  EXPECT_EQ(read_file(run.path / "run/config.cfg"), config);
  EXPECT_EQ(run.lines().size(), 3u);
  // Dropout changes the training, but not what the network computes from a sample.
  run.config.model.layers.insert(run.config.model.layers.begin() + at, "dropout 0.1");
  run.train();
  EXPECT_EQ(run.lines().size(), 9u);
}

// Checkpoints whose lines of the function are of another version are compared by their configuration.
TEST(Resume, AnOlderTextOfTheFunctionIsComparedByTheKeys) {
  RunConfig config = test::small_run(true);
  config.text = print_config(config);
  CheckpointModel model{"step.h5", ModelRecord{}, config.text};
  require_same_function(model, config);
  config.optim.lr = 7;
  config.text = print_config(config);
  require_same_function(model, config);
  config.model.layers[1] = "tanh";
  config.text = print_config(config);
  test::expect_error(Exit::config, "step.h5 holds another network: model.layers (",
                     [&] { require_same_function(model, config); });
  model.record->function_version = function_text_version;
  require_same_function(model, config);  // Session compares them
}

TEST(Resume, NormalisationStaysThatOfTheCheckpoint) {
  TemporaryFolder run;
  run.stop_after(3);  // the end of an epoch, so that other data is accepted
  const auto model = [&] {
    const auto newest = CheckpointStore::list(run.path / "run/checkpoints").back();
    return CheckpointStore::model(*solo_world(), newest).record.value();
  };
  const auto mean = model().values.mean;
  ASSERT_EQ(mean.size(), 3u);
  run.config.data.train = {"synthetic:images:rows=96,shape=9x8x3,classes=4,seed=5"};
  run.train();
  EXPECT_EQ(model().values.mean, mean);
}

// Evaluations happen between the periodic checkpoints. The best checkpoint must hold exactly the evaluated weights.
TEST(Checkpoint, TheBestCheckpointHoldsEvaluatedWeights) {
  TemporaryFolder run;
  run.config.data.valid = {"synthetic:images:rows=200,shape=9x8x3,classes=4,seed=9"};
  run.config.checkpoint.every = "2";
  run.config.checkpoint.keep = 1;
  run.config.train.epochs = 5;
  run.train();
  std::string best;
  std::getline(std::ifstream(run.path / "run/checkpoints/best"), best);
  const auto text = describe_checkpoint((run.path / "run/checkpoints" / best).string());
  const auto step =
      text.text.substr(text.text.find("step ") + 5, text.text.find(", epoch") - text.text.find("step ") - 5);
  EXPECT_EQ(std::stoi(step) % 3, 0) << "not the end of an epoch: " << text.text;
  EXPECT_NE(text.text.find("% at step " + step + "\n"), std::string::npos) << text.text;
  EXPECT_EQ(text.damage, "");
}

TEST(Checkpoint, AnEarlierAccuracyDoesNotMakeALaterCheckpointTheBest) {
  const test::TemporaryFolder folder;
  const auto world = solo_world();
  ExecutionContext compute = make_cpu_context(*world, {});
  NetworkSpec spec;
  spec.model.name = "mlp";
  spec.model.hidden = {4};
  spec.batch = {0, {4}, DType::f32, {}, true};
  spec.train_rows = {2};
  Network network(compute, spec);
  CheckpointStore store(*world, compute, folder.path, 1);
  RunState run;
  for (run.step = 1; run.step <= 4; ++run.step) {
    if (run.step == 2) {
      run.valid_step = run.best_step = 2;
      run.valid_accuracy = run.best_value = 0.9;
    }
    ASSERT_EQ(store.save(network, run), "");
  }
  std::vector<std::string> names;
  for (const auto& f : CheckpointStore::list(folder.path)) names.push_back(f.filename().string());
  EXPECT_EQ(names, (std::vector<std::string>{"step-00000002.h5", "step-00000004.h5"}));
}

}  // namespace resume_test
}  // namespace millrace
