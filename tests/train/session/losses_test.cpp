// Trainings of a network with several losses.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "millrace/train/session/data_sets.hpp"
#include "support/expect_error.hpp"
#include "train/linear_run.hpp"

namespace millrace {
namespace losses_test {

using test::metrics_of;
using test::tensors_of;

// 53 samples of three numbers with labels (a negative one does not count), two targets and a yes or no.
struct ThreeLosses : test::LinearRun {
  explicit ThreeLosses(const std::vector<float>& energy = test::targets(2))
      : LinearRun(DType::f32, energy, Loss::automatic) {
    const auto kinds = test::labels_of(3);
    std::vector<std::int32_t> hits;
    for (int i = 0; i < rows; ++i) hits.push_back(i % 3 == 0);
    io::File file = io::File::create((path / "data.h5").string());
    const auto column = [&](const char* name, DType type, const std::vector<std::int64_t>& shape, const void* values) {
      file.create_dataset(name, type, shape);
      file.write_rows(name, 0, rows, type, values);
    };
    column("/x", DType::f32, {rows, features}, x.data());
    column("/energy", DType::f32, {rows, 2}, y.data());
    column("/kind", DType::i32, {rows}, kinds.data());
    column("/hit", DType::i32, {rows}, hits.data());
    config.data.y = "kind,energy,hit";
    config.model.layers = {"linear 8",
                           "tanh as=trunk",
                           "linear 3",
                           "loss cross_entropy y=kind as=kind",
                           "linear 2 from=trunk",
                           "loss mse y=energy weight=0.5 as=energy",
                           "linear 1 from=trunk",
                           "loss binary_cross_entropy y=hit as=hit"};
    config.train.steps = 6;
    config.optim.lr = 0.05;
    config.checkpoint.every = "2";
  }
};

double total(const nlohmann::json& line) {
  return double(line.at("loss.kind")) + 0.5 * double(line.at("loss.energy")) + double(line.at("loss.hit"));
}

// `eval` without the training data prints what the training has measured last.
void expect_evaluation(const test::LinearRun& run) {
  RunConfig evaluated = run.config;
  evaluated.data.train.clear();
  testing::internal::CaptureStdout();
  run_thread_world(1, [&](World& world) {
    EXPECT_EQ(evaluate(world, evaluated, {.run_dir = evaluated.run.dir, .which = "newest"}), Exit::ok);
  });
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find(fmt::format("validation loss {:.6g} on", double(run.last_validation().at("loss")))),
            std::string::npos)
      << printed;
}

TEST(LossesOfARun, TheLossIsTheirSumByTheirWeights) {
  ThreeLosses run;
  run.train(1);
  const auto lines = metrics_of(run.path / "run");
  ASSERT_EQ(lines.size(), 6u);
  for (const auto& line : lines) EXPECT_NEAR(double(line.at("loss")), total(line), 1e-9);
  const auto valid = run.last_validation();
  EXPECT_NEAR(double(valid.at("loss")), total(valid), 1e-9);
  for (const char* name : {"accuracy.kind", "macro_f1.kind", "auc.kind", "mae.energy", "rmse.energy", "r2.energy",
                           "accuracy.hit", "macro_f1.hit", "auc.hit"})
    EXPECT_TRUE(valid.at(name).is_number()) << name;
  EXPECT_TRUE(valid.at("accuracy").is_null());
  EXPECT_EQ(run.summary().at("valid_loss.kind"), valid.at("loss.kind"));
}

// The network by itself, from the weights of the last checkpoint.
TEST(LossesOfARun, AnEvaluationIsThatOfEachLoss) {
  ThreeLosses run;
  run.train(1);
  const auto tensors = tensors_of(run.path / "run");
  const auto layer = [&](int number, const std::vector<double>& from) {
    const std::string name = "/parameters/linear" + std::to_string(number);
    const auto &weight = tensors.at(name + ".weight"), &bias = tensors.at(name + ".bias");
    std::vector<double> out;
    for (std::size_t o = 0; o < bias.size(); ++o) {
      double sum = double(bias[o]);
      for (std::size_t f = 0; f < from.size(); ++f) sum += double(weight[o * from.size() + f]) * from[f];
      out.push_back(sum);
    }
    return out;
  };
  const auto kinds = test::labels_of(3);
  double kind = 0, energy = 0, hit = 0, right = 0, labelled = 0, distance = 0;
  for (std::size_t r = 0; r < std::size_t(run.rows); ++r) {
    std::vector<double> trunk =
        layer(1, {run.x.begin() + 3 * std::ptrdiff_t(r), run.x.begin() + 3 * std::ptrdiff_t(r) + 3});
    for (double& v : trunk) v = std::tanh(v);
    const auto logits = layer(2, trunk), targets = layer(3, trunk);
    const double z = layer(4, trunk)[0];
    if (kinds[r] >= 0) {
      const auto label = std::size_t(kinds[r]);
      kind += std::log(std::exp(logits[0]) + std::exp(logits[1]) + std::exp(logits[2])) - logits[label];
      right += std::max_element(logits.begin(), logits.end()) - logits.begin() == std::ptrdiff_t(label);
      ++labelled;
    }
    for (const std::size_t k : {0u, 1u}) {
      const double d = targets[k] - double(run.y[2 * r + k]);
      energy += d * d / 2;
      distance += std::abs(d) / 2;
    }
    hit += std::log1p(std::exp(r % 3 == 0 ? -z : z));
  }
  const auto valid = run.last_validation();
  const double n = double(run.rows);
  EXPECT_NEAR(valid.at("loss.kind"), kind / n, 1e-5) << "a row without a label adds zero";
  EXPECT_NEAR(valid.at("accuracy.kind"), right / labelled, 1e-12);
  EXPECT_NEAR(valid.at("loss.energy"), energy / n, 1e-5);
  EXPECT_NEAR(valid.at("mae.energy"), distance / n, 1e-5);
  EXPECT_NEAR(valid.at("loss.hit"), hit / n, 1e-5);
}

// data.normalize_targets leaves labels as they are.
TEST(LossesOfARun, TargetsAreNormalisedBesideLabels) {
  std::vector<float> energy = test::targets(2), normalised;
  for (std::size_t i = 0; i < energy.size(); ++i) energy[i] = i % 2 == 0 ? 700 * energy[i] - 9000 : energy[i] / 50;
  std::array<double, 2> mean{}, deviation{};
  const double rows = double(energy.size()) / 2;
  for (std::size_t i = 0; i < energy.size(); ++i) mean[i % 2] += double(energy[i]) / rows;
  for (std::size_t i = 0; i < energy.size(); ++i)
    deviation[i % 2] += std::pow(double(energy[i]) - mean[i % 2], 2) / rows;
  for (double& d : deviation) d = std::sqrt(d);
  for (std::size_t i = 0; i < energy.size(); ++i)
    normalised.push_back(float((double(energy[i]) - mean[i % 2]) / deviation[i % 2]));
  ThreeLosses by_hand(normalised);
  by_hand.train(1);
  for (const int ranks : {1, 2}) {
    ThreeLosses run(energy);
    run.config.data.normalize_targets = true;
    run.train(ranks);
    const auto expected = by_hand.summary(), actual = run.summary();
    for (const char* name : {"loss.kind", "loss.energy", "loss.hit", "accuracy.kind", "accuracy.hit"})
      EXPECT_NEAR(actual.at(std::string("valid_") + name), double(expected.at(std::string("valid_") + name)), 1e-5)
          << name;
    for (std::size_t o = 0; o < 2; ++o) {
      const auto &hand = expected.at("valid_outputs.energy").at(o), &own = actual.at("valid_outputs.energy").at(o);
      EXPECT_NEAR(own.at("mae"), double(hand.at("mae")) * deviation[o], 1e-5 * deviation[o]);
      EXPECT_NEAR(own.at("rmse"), double(hand.at("rmse")) * deviation[o], 1e-5 * deviation[o]);
      EXPECT_NEAR(own.at("r2"), double(hand.at("r2")), 1e-5);
    }
  }
}

TEST(LossesOfARun, RanksMicroBatchesAndShardedOptimizersChangeNothing) {
  ThreeLosses one;
  one.train(1);
  for (const auto& [ranks, zero] : {std::pair(2, false), {3, true}}) {
    ThreeLosses other;
    other.config.train.micro_batch = 5;
    other.config.optim.zero = zero;
    other.train(ranks);
    const auto a = metrics_of(one.path / "run"), b = metrics_of(other.path / "run");
    for (std::size_t i = 0; i < a.size(); ++i)
      for (const char* key : {"loss", "loss.kind", "loss.energy", "loss.hit"})
        EXPECT_NEAR(double(a[i].at(key)), double(b[i].at(key)), 1e-5) << key << " of step " << i + 1;
    const auto expected = one.last_validation(), actual = other.last_validation();
    for (const auto& [key, value] : expected.items()) {
      if (!value.is_number_float()) continue;
      EXPECT_NEAR(double(value), double(actual.at(key)), 1e-5) << key;
    }
  }
}

TEST(LossesOfARun, StrictRunsHaveTheSameBitsOnAnyRanks) {
  std::vector<nlohmann::json> lines[2];
  nlohmann::json valid[2];
  for (const int ranks : {1, 2}) {
    ThreeLosses run;
    run.config.run.reproducible = Reproducible::strict;
    run.config.train.micro_batch = 5;
    run.train(ranks);
    lines[ranks - 1] = metrics_of(run.path / "run");
    valid[ranks - 1] = run.last_validation();
  }
  for (std::size_t i = 0; i < lines[0].size(); ++i)
    for (const char* key : {"loss", "loss.kind", "loss.energy", "loss.hit"})
      EXPECT_EQ(lines[0][i].at(key), lines[1][i].at(key)) << key << " of step " << i + 1;
  EXPECT_EQ(valid[0], valid[1]);
}

TEST(LossesOfARun, AResumedRunAndAnEvaluationOfTheCheckpointKnowThem) {
  ThreeLosses whole, halves;
  halves.config.train.steps = 4;
  halves.config.optim.schedule = whole.config.optim.schedule = LrSchedule::constant;
  whole.train(1);
  halves.train(1);
  halves.config.train.steps = 6;
  run_thread_world(2, [&](World& world) { EXPECT_EQ(train(world, halves.config), Exit::ok); });
  const auto a = metrics_of(whole.path / "run"), b = metrics_of(halves.path / "run");
  EXPECT_NEAR(double(a.at(5).at("loss")), double(b.at(5).at("loss")), 1e-6);
  expect_evaluation(halves);
}

// An index of the checkpoint's record alone, whose only target has a name.
TEST(LossesOfARun, AnEvaluationKnowsTheNameOfAnOnlyTarget) {
  ThreeLosses run;
  run.config.data.y = "/energy";
  run.config.model.layers = {"linear 8", "tanh", "linear 2", "loss mse y=energy as=energy"};
  run.train(1);
  expect_evaluation(run);
}

TEST(LossesOfARun, ATargetThatIsNoProbabilityIsNamed) {
  ThreeLosses run;
  run.config.model.layers[5] = "loss binary_cross_entropy y=energy as=energy";
  test::expect_error(Exit::diverged, "has a target that is not between 0 and 1", [&] { run.train(1); });
}

// Such a checkpoint says how many targets there are, but not that they lie in several data sets.
TEST(LossesOfARun, ARecordOfAnOlderVersionFitsSeveralTargetsButNoLabels) {
  ThreeLosses run;
  run.config.data.y = "energy,energy";
  ModelRecord older;
  older.sample = {ThreeLosses::features};
  older.sample_type = DType::f32;
  older.labels = false;
  older.target = {4};
  const auto index = [&] { return index_data_sets(*solo_world(), run.config, false, &older); };
  EXPECT_EQ(index().reference().y.target, (Shape{4}));
  run.config.data.y = "kind,energy,hit";
  test::expect_error(Exit::data, "both must have the same shape, type, layout and kind of targets", index);
}

TEST(LossesOfARun, KeysThatDoNotFitAreRefused) {
  const auto refuse = [](const char* words, const std::function<void(RunConfig&)>& change) {
    ThreeLosses run;
    change(run.config);
    test::expect_error(Exit::config, words,
                       [&] { run_thread_world(1, [&](World& world) { train(world, run.config); }); });
  };
  refuse("model.loss: the network has `loss` lines. remove the key", [](auto& c) { c.model.loss = Loss::mse; });
  refuse("train.mixup: networks with `loss` lines cannot mix their labels", [](auto& c) { c.train.mixup = 0.2; });
  refuse("write label_smoothing= in the line", [](auto& c) { c.model.label_smoothing = 0.1; });
  refuse("model.class_weights: the network has `loss` lines", [](auto& c) { c.model.class_weights = {"1", "2"}; });
  refuse("name one data set, or use model.name = layers with a line such as `loss cross_entropy y=kind`",
         [](auto& c) { c.model.layers = {"linear outputs"}; });
  refuse("checkpoint.best: an evaluation of these data and this loss has no accuracy. use one of loss",
         [](auto& c) { c.checkpoint.best = BestMetric::accuracy; });
}

}  // namespace losses_test
}  // namespace millrace
