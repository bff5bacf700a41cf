// Trainings and evaluations on parts of one data set.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "millrace/data/scan/index_shards.hpp"
#include "millrace/data/scan/split_rows.hpp"
#include "support/expect_error.hpp"
#include "train/linear_run.hpp"

namespace millrace {
namespace split_test {

using nlohmann::json;
using test::LinearRun;

struct SplitRun : LinearRun {
  SplitRun() : LinearRun(DType::i32, test::labels_of(3), Loss::automatic) {
    config.data.valid.clear();
    config.data.split = {0.5, 0.3, 0.2};
    config.data.split_by = SplitBy::labels;
  }
  RowSplit split() const {
    RowSplit out;
    run_thread_world(1, [&](World& world) {
      const ShardIndex d = index_shards(world, {.paths = config.data.train});
      out = split_rows(world, d, config.data);
    });
    return out;
  }
  json evaluated(int ranks, SplitPart part) const {
    RunConfig other = config;
    other.data.eval_split = part;
    run_thread_world(ranks, [&](World& world) { evaluate(world, other, {config.run.dir, "newest"}); });
    return json::parse(read_file(path / "run" / "evaluation.json"));
  }
  // By hand, of the samples of a part.
  std::vector<std::vector<int>> confusion(const RowSelection& part) const {
    std::vector<std::vector<int>> out(3, std::vector<int>(3));
    const auto logits = predictions();
    for (std::int64_t i = 0; i < part.count(); ++i) {
      const auto r = std::size_t(part.id(i));
      if (y[r] >= 0) ++out[std::size_t(y[r])][std::size_t(std::ranges::max_element(logits[r]) - logits[r].begin())];
    }
    return out;
  }
};

TEST(LossesOfASplit, EachPartIsMeasuredAlone) {
  for (const int ranks : {1, 2}) {
    SplitRun run;
    run.train(ranks);
    const RowSplit split = run.split();
    EXPECT_EQ(run.summary().at("valid_confusion"), json(run.confusion(*split.valid)));
    for (const SplitPart part : {SplitPart::train, SplitPart::valid, SplitPart::test}) {
      const json result = run.evaluated(ranks, part);
      EXPECT_EQ(result.at("confusion"), json(run.confusion(*split.part(part)))) << name_of(part);
      EXPECT_EQ(result.at("split"), name_of(part));
    }
    const json record = json::parse(read_file(run.path / "run" / "run.json"));
    EXPECT_EQ(record.at("train").at("rows"), split.train->count());
    EXPECT_EQ(record.at("valid").at("rows"), split.valid->count());
  }
}

// One step on all samples of the part gives the weights of a file that holds only these.
TEST(LossesOfASplit, TheNetworkSeesOnlyTheTrainingPart) {
  SplitRun run;
  run.config.train.global_batch = LinearRun::rows;
  run.config.data.normalize = true;
  run.train(1);
  const RowSplit split = run.split();
  std::vector<float> x;
  std::vector<std::int32_t> y;
  for (std::int64_t i = 0; i < split.train->count(); ++i) {
    const auto row = std::size_t(split.train->id(i));
    x.insert(x.end(), &run.x[row * LinearRun::features], &run.x[(row + 1) * LinearRun::features]);
    y.push_back(std::int32_t(run.y[row]));
  }
  LinearRun alone(DType::i32, test::labels_of(3), Loss::automatic);
  const auto rows = std::int64_t(y.size());
  {
    io::File file = io::File::create((alone.path / "data.h5").string());
    file.create_dataset("/x", DType::f32, {rows, LinearRun::features});
    file.write_rows("/x", 0, rows, DType::f32, x.data());
    file.create_dataset("/y", DType::i32, {rows});
    file.write_rows("/y", 0, rows, DType::i32, y.data());
  }
  alone.config.train = run.config.train;
  alone.config.data.normalize = true;
  alone.train(1);
  const auto with_split = test::tensors_of(run.path / "run"), without = test::tensors_of(alone.path / "run");
  for (const char* name : {"/parameters/linear1.weight", "/parameters/linear1.bias"})
    for (std::size_t i = 0; i < without.at(name).size(); ++i)
      EXPECT_NEAR(with_split.at(name)[i], without.at(name)[i], 1e-6) << name;
}

// The refusal of two ranks to go on with the newest checkpoint of a run after a change of its keys.
std::string refusal(const LinearRun& run, bool training, const std::function<void(DataConfig&)>& change) {
  RunConfig other = run.config;
  other.train.steps = 2;
  change(other.data);
  const auto work = [&](World& world) {
    if (training)
      millrace::train(world, other);
    else
      evaluate(world, other, {run.config.run.dir, "newest"});
  };
  return test::message_of([&] { run_thread_world(2, work); }, Exit::config);
}

TEST(LossesOfASplit, OtherPartsThanThoseOfTheTrainingAreRefused) {
  const auto expect_other_parts = [](const std::string& message) {
    EXPECT_NE(message.find("data.split: the parts are not those of the training"), message.npos) << message;
  };
  SplitRun run;
  run.train(1);
  for (const bool training : {false, true}) {
    expect_other_parts(refusal(run, training, [](DataConfig& d) { d.split_seed = 2; }));
    expect_other_parts(refusal(run, training, [](DataConfig& d) {
      d.fold = {1, 2};
      d.split = {};
    }));
  }
  // It would go on with samples of the test.
  expect_other_parts(refusal(run, true, [](DataConfig& d) {
    d.split = {};
    d.split_by = SplitBy::rows;
    d.valid = d.train;
  }));
  LinearRun whole(DType::i32, test::labels_of(3), Loss::automatic);
  whole.train(1);
  const std::string message = refusal(whole, false, [](DataConfig& d) {
    d.valid.clear();
    d.split = {0.5, 0.5};
  });
  EXPECT_NE(message.find("data.split: the network of the checkpoint was trained without it"), message.npos) << message;
}

TEST(LossesOfASplit, KeysThatContradictEachOtherAreRefused) {
  SplitRun run;
  run.train(1);
  EXPECT_EQ(
      refusal(run, true, [](DataConfig& d) { d.valid = d.train; }),
      "data.valid: data.split and data.fold take the validation data from data.train. remove data.valid, or both");
  EXPECT_EQ(refusal(run, false,
                    [](DataConfig& d) {
                      d.valid = d.train;
                      d.eval_split = SplitPart::test;
                    }),
            "data.eval_split: there is no part test, because data.valid names the files. remove data.eval_split "
            "(--split)");
  SplitRun without_test;
  without_test.config.data.split = {0.7, 0.3};
  without_test.train(1);
  EXPECT_EQ(refusal(without_test, false, [](DataConfig& d) { d.eval_split = SplitPart::test; }),
            "data.eval_split: data.split has no samples in the part test. choose another one (--split)");
}

}  // namespace split_test
}  // namespace millrace
