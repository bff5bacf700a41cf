// Trainings of a network with several inputs.
#include <gtest/gtest.h>

#include <cmath>

#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace inputs_test {

using test::metrics_of;

// 61 samples of nine numbers: as one data set, and as two of six and of three numbers with types of their own.
struct NineNumbers : test::TemporaryFolder {
  static constexpr std::int64_t rows = 61;
  RunConfig config;

  explicit NineNumbers(bool two) {
    std::vector<float> x, six;
    std::vector<double> three;
    std::vector<std::int32_t> y;
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < 9; ++i) {
        const float v = float((r * 37 + i * i * 11) % 29) / 7;
        x.push_back(v);
        if (i < 6)
          six.push_back(v);
        else
          three.push_back(double(v));
      }
      y.push_back(r * 5 / 3 % 4);
    }
    io::File file = io::File::create((path / "data.h5").string());
    const auto column = [&](const char* name, DType type, const std::vector<std::int64_t>& shape, const void* values) {
      file.create_dataset(name, type, shape);
      file.write_rows(name, 0, rows, type, values);
    };
    column("/x", DType::f32, {rows, 9}, x.data());
    column("/six", DType::f32, {rows, 6}, six.data());
    column("/three", DType::f64, {rows, 3}, three.data());
    column("/y", DType::i32, {rows}, y.data());
    file.close();
    config.data.train = config.data.valid = {(path / "data.h5").string()};
    config.data.workers = 1;
    config.data.x = two ? "six, three" : "x";
    config.model.name = ModelName::layers;
    config.model.layers = {"linear 16 as=a", "relu", "linear outputs as=b"};
    if (two)
      config.model.layers.insert(config.model.layers.begin(),
                                 {"input six as=first", "input three as=second", "concat second from=first"});
    config.train.steps = 6;
    config.train.global_batch = 20;
    config.optim.lr = 0.05;
    config.optim.schedule = LrSchedule::constant;
    config.run.threads = 1;
    config.run.dir = (path / "run").string();
  }
  void train(int ranks) const {
    run_thread_world(ranks, [&](World& world) { EXPECT_EQ(millrace::train(world, config), Exit::ok); });
  }
  std::vector<nlohmann::json> lines() const { return metrics_of(path / "run"); }
};

void expect_same_losses(const NineNumbers& a, const NineNumbers& b, double tolerance) {
  const auto expected = a.lines(), actual = b.lines();
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(double(expected[i].at("loss")), double(actual[i].at("loss")), tolerance) << "step " << i + 1;
}

// Mean and deviation are measured for each input.
TEST(InputsOfARun, TwoInputsEqualOneOfAllNumbers) {
  NineNumbers one(false), two(true);
  one.train(1);
  two.train(1);
  expect_same_losses(one, two, 1e-6);
}

TEST(InputsOfARun, RanksAndMicroBatchesChangeNothing) {
  NineNumbers one(true), two(true);
  two.config.train.micro_batch = 5;
  one.train(1);
  two.train(2);
  expect_same_losses(one, two, 1e-6);
}

TEST(InputsOfARun, ARunIsResumedAndItsCheckpointEvaluated) {
  NineNumbers whole(true), halves(true);
  whole.train(1);
  halves.config.train.steps = 4;
  halves.train(1);
  halves.config.train.steps = 6;
  halves.train(1);
  expect_same_losses(whole, halves, 1e-7);
  RunConfig evaluated = halves.config;
  evaluated.data.train.clear();
  run_thread_world(1, [&](World& world) {
    EXPECT_EQ(evaluate(world, evaluated, {.run_dir = evaluated.run.dir, .which = "newest"}), Exit::ok);
  });
  evaluated.data.x = "three, six";
  test::expect_error(Exit::config, "data.x: input 1 is", [&] {
    run_thread_world(
        1, [&](World& world) { evaluate(world, evaluated, {.run_dir = evaluated.run.dir, .which = "newest"}); });
  });
  evaluated.data.x = "six";
  evaluated.model.layers = {"input six", "linear 16 as=a", "relu", "linear outputs as=b"};
  test::expect_error(Exit::config, "data.x names 1 inputs, but the training data of the checkpoint has 2", [&] {
    run_thread_world(
        1, [&](World& world) { evaluate(world, evaluated, {.run_dir = evaluated.run.dir, .which = "newest"}); });
  });
}

TEST(InputsOfARun, KeysThatDoNotFitAreRefused) {
  const auto refuse = [](const char* words, const std::function<void(RunConfig&)>& change) {
    NineNumbers run(true);
    change(run.config);
    test::expect_error(Exit::config, words,
                       [&] { run_thread_world(1, [&](World& world) { train(world, run.config); }); });
  };
  refuse("data.channels: it is for a network with one input", [](auto& c) { c.data.channels = {"0"}; });
  refuse("data.augment: augmentation needs images, but no input has positions", [](auto& c) { c.data.augment = true; });
  refuse("train.mixup: several inputs cannot be mixed", [](auto& c) { c.train.mixup = 0.2; });
  refuse("synthetic data has one input. remove the `input` lines", [](auto& c) {
    c.data.train = {"synthetic:images:rows=50,shape=4x4x1,classes=4"};
    c.data.valid.clear();
  });
  refuse("data.x: 'six' is named twice", [](auto& c) { c.data.x = "six, three, six"; });
  refuse("data.x: no line `input three` reads 'three'", [](auto& c) {
    c.model.layers = {"input six", "linear outputs"};
  });
  refuse("data.x has no data set 'four'. it has six, three", [](auto& c) { c.model.layers[1] = "input four"; });
}

}  // namespace inputs_test
}  // namespace millrace
