// Trainings of a network with several inputs.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "support/expect_error.hpp"
#include "support/recorded.hpp"
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

// tests/fixtures/pt2/twoinputs.pt2, whose inputs are called image and numbers, with the data of pt2_inputs.py.
struct ImageAndNumbers : test::TemporaryFolder {
  static constexpr std::int64_t rows = 8;
  RunConfig config;

  ImageAndNumbers(const std::string& image, const std::string& numbers) {
    const test::Sequence pixels("twoinputs image"), values("twoinputs numbers"), labels("twoinputs y");
    std::vector<std::uint8_t> x;
    std::vector<float> more;
    std::vector<std::int32_t> y;
    for (std::int64_t i = 0; i < rows * 240; ++i) x.push_back(std::uint8_t(pixels.below(256, i)));
    for (std::int64_t i = 0; i < rows * 5; ++i) more.push_back(float(values.below(256, i)) / 128 - 1);
    for (std::int64_t i = 0; i + 1 < rows; ++i) y.push_back(std::int32_t(labels.below(5, i)));
    y.push_back(4);
    io::File file = io::File::create((path / "data.h5").string());
    const auto column = [&](const std::string& name, DType type, const std::vector<std::int64_t>& shape,
                            const void* of_column) {
      file.create_dataset("/" + name, type, shape);
      file.write_rows("/" + name, 0, rows, type, of_column);
    };
    column(image, DType::u8, {rows, 8, 10, 3}, x.data());
    column(numbers, DType::f32, {rows, 5}, more.data());
    column("y", DType::i32, {rows}, y.data());
    file.close();
    config.data.train = config.data.valid = {(path / "data.h5").string()};
    config.data.workers = 1;
    config.data.shuffle = Shuffle::off;
    config.data.normalize = false;
    config.model.name = ModelName::pt2;
    config.model.file = std::string(MILLRACE_SOURCE_DIR) + "/tests/fixtures/pt2/twoinputs.pt2";
    config.train.steps = 10;
    config.train.global_batch = rows;
    config.optim.weight_decay = 0;
    config.optim.schedule = LrSchedule::constant;
    config.run.threads = 1;
    config.run.dir = (path / "run").string();
  }
};

// Also the batch norms, whose momenta differ: the evaluation has their running statistics.
TEST(InputsOfARun, ImportedNetworkHasTheLossesOfPyTorch) {
  const nlohmann::json expected = test::recorded("pt2_inputs.json");
  for (const int ranks : {1, 2}) {
    ImageAndNumbers run("image", "numbers");
    run.config.data.x = ranks == 1 ? "numbers, image" : "image, numbers";  // found by their names
    run.config.optim.lr = expected.at("rate");
    run_thread_world(ranks, [&](World& world) { EXPECT_EQ(train(world, run.config), Exit::ok); });
    const auto lines = metrics_of(run.path / "run");
    const nlohmann::json& losses = expected.at(fmt::format("{} ranks", ranks));
    ASSERT_EQ(lines.size(), losses.size());
    for (std::size_t i = 0; i < lines.size(); ++i)
      EXPECT_NEAR(double(lines[i].at("loss")), double(losses[i]), 1e-5) << ranks << " ranks, step " << i + 1;
    if (ranks > 1) continue;
    std::ifstream summary(run.path / "run/summary.json");
    EXPECT_NEAR(double(nlohmann::json::parse(summary).at("valid_loss")), double(expected.at("evaluated")), 1e-5);
    run.config.data.train.clear();
    run.config.model.file = "gone.pt2";  // the checkpoint has the network
    run_thread_world(1, [&](World& world) {
      EXPECT_EQ(evaluate(world, run.config, {.run_dir = run.config.run.dir, .which = "newest"}), Exit::ok);
    });
  }
}

TEST(InputsOfARun, InputsOfAnImportedNetworkAreInOrderIfTheirNamesDiffer) {
  const auto start = [](const char* image, const char* numbers, const std::string& x) {
    ImageAndNumbers run(image, numbers);
    run.config.data.x = x;
    run.config.train.steps = 1;
    run_thread_world(1, [&](World& world) { train(world, run.config); });
    return double(metrics_of(run.path / "run").at(0).at("loss"));
  };
  EXPECT_NEAR(start("a", "b", "a, b"), double(test::recorded("pt2_inputs.json").at("1 ranks").at(0)), 1e-5);
  test::expect_error(Exit::config, "takes samples of (N, 3, 8, 10) as its input 'image', but the data has 8x5",
                     [&] { start("a", "b", "b, a"); });
  test::expect_error(Exit::config, "has the inputs image, numbers, but data.x names numbers, b",
                     [&] { start("b", "numbers", "numbers, b"); });
  test::expect_error(Exit::config, "has the inputs image, numbers, but data.x names one input",
                     [&] { start("a", "b", "a"); });
}

TEST(InputsOfARun, AMissingNetworkIsNamedBeforeTheDataIsRead) {
  for (const int ranks : {1, 3}) {
    ImageAndNumbers run("image", "numbers");
    run.config.data.x = "image, numbers";
    run.config.model.file = (run.path / "twoinptus.pt2").string();
    test::expect_error(Exit::config, "model.file: there is no " + run.config.model.file + " in ",
                       [&] { run_thread_world(ranks, [&](World& world) { train(world, run.config); }); });
  }
}

// Each thread is a host: the second one lacks the file.
TEST(InputsOfARun, AHostWithoutTheNetworkEndsAllRanks) {
  ImageAndNumbers run("image", "numbers");
  run.config.data.x = "image, numbers";
  test::expect_error(Exit::config, "[rank 1 @ ", [&] {
    run_thread_world(2, [&](World& world) {
      RunConfig mine = run.config;
      if (world.rank() == 1) mine.model.file = "gone.pt2";
      train(world, mine);
    });
  });
}

TEST(InputsOfARun, RefusalsOfImportedNetworksSpeakOfTheNetwork) {
  const auto refuse = [](const char* words, const std::function<void(RunConfig&)>& change) {
    ImageAndNumbers run("image", "numbers");
    run.config.data.x = "image, numbers";
    change(run.config);
    test::expect_error(Exit::config, words,
                       [&] { run_thread_world(1, [&](World& world) { train(world, run.config); }); });
  };
  refuse("model.file: synthetic data has one input. set data.train to HDF5 files", [](auto& c) {
    c.data.train = {"synthetic:images:rows=50,shape=8x10x3,classes=5"};
    c.data.valid.clear();
  });
  refuse("data.x: 'image' is named twice. name it once, and each input of the network",
         [](auto& c) { c.data.x = "image, numbers, image"; });
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
