// Errors of regressions, and targets that are normalised.
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/base/files.hpp"
#include "support/expect_error.hpp"
#include "train/linear_run.hpp"

namespace millrace {
namespace regression_test {

using nlohmann::json;
using test::LinearRun;

// Of each output and of all values together, computed in two passes.
struct Errors {
  double n = 0, absolute = 0, squares = 0, variation = 0;
  Errors(const std::vector<std::vector<double>>& predictions, const std::vector<float>& y, int output = -1) {
    const std::size_t outputs = predictions[0].size();
    double mean = 0;
    const auto each = [&](const auto& f) {
      for (std::size_t i = 0; i < y.size(); ++i)
        if (output < 0 || i % outputs == std::size_t(output)) f(double(y[i]), predictions[i / outputs][i % outputs]);
    };
    each([&](double target, double) {
      mean += target;
      ++n;
    });
    mean /= n;
    each([&](double target, double prediction) {
      absolute += std::abs(prediction - target);
      squares += (prediction - target) * (prediction - target);
      variation += (target - mean) * (target - mean);
    });
  }
  void expect(const json& errors, const std::string& prefix) const {
    const auto near = [&](const char* name, double expected) {
      EXPECT_NEAR(errors.at(prefix + name), expected, 1e-5 * std::abs(expected) + 1e-6) << name;
    };
    near("mae", absolute / n);
    near("rmse", std::sqrt(squares / n));
    near("r2", 1 - squares / variation);
  }
};

void expect_errors(const LinearRun& run, const std::vector<std::vector<double>>& predictions) {
  const json summary = run.summary();
  Errors(predictions, run.y).expect(summary, "valid_");
  ASSERT_EQ(summary.at("valid_outputs").size(), predictions[0].size());
  for (std::size_t o = 0; o < predictions[0].size(); ++o)
    Errors(predictions, run.y, int(o)).expect(summary["valid_outputs"][o], "");
}

// Targets far from zero: their squares alone would leave three digits of R2.
TEST(EvaluationOfTargets, MeasuresEachOutputWithoutLossOfDigits) {
  for (const int ranks : {1, 2})
    for (const auto reproducible : {Reproducible::setup, Reproducible::strict}) {
      std::vector<float> y;
      for (int i = 0; i < LinearRun::rows; ++i)
        y.insert(y.end(), {float(1 << 22) + float(i * 13 % 7) / 2, float(i * 5 % 11), -float(i % 3)});
      LinearRun run(DType::f32, y, Loss::mae);
      run.config.run.reproducible = reproducible;
      run.train(ranks);
      expect_errors(run, run.predictions());
    }
}

TEST(EvaluationOfTargets, TargetsAreNormalisedAndErrorsAreInTheirUnits) {
  std::vector<float> y, normalised;
  std::vector<double> mean(2), deviation(2);
  for (int i = 0; i < LinearRun::rows; ++i)
    y.insert(y.end(), {5000 + float(i * 13 % 7) * 300, float(i * 5 % 11) / 100});
  for (std::size_t i = 0; i < y.size(); ++i) mean[i % 2] += double(y[i]) / LinearRun::rows;
  for (std::size_t i = 0; i < y.size(); ++i)
    deviation[i % 2] += (double(y[i]) - mean[i % 2]) * (double(y[i]) - mean[i % 2]) / LinearRun::rows;
  for (double& d : deviation) d = std::sqrt(d);
  for (std::size_t i = 0; i < y.size(); ++i)
    normalised.push_back(float((double(y[i]) - mean[i % 2]) / deviation[i % 2]));
  LinearRun by_hand(DType::f32, normalised, Loss::mse);
  by_hand.train(1);
  for (const int ranks : {1, 2}) {
    LinearRun run(DType::f32, y, Loss::mse);
    run.config.data.normalize_targets = true;
    run.train(ranks);
    EXPECT_NEAR(run.summary().at("valid_loss"), double(by_hand.summary().at("valid_loss")), 1e-5);
    auto predictions = run.predictions();
    const auto of_hand = by_hand.predictions();
    for (std::size_t r = 0; r < predictions.size(); ++r)
      for (std::size_t o = 0; o < 2; ++o) {
        EXPECT_NEAR(predictions[r][o], of_hand[r][o], 1e-5);
        predictions[r][o] = predictions[r][o] * deviation[o] + mean[o];
      }
    expect_errors(run, predictions);
    // The checkpoint holds mean and standard deviation: other data to evaluate does not change them.
    RunConfig evaluated = run.config;
    evaluated.data.train = {"gone.h5"};
    const double before = run.summary().at("valid_rmse");
    run_thread_world(ranks, [&](World& world) { evaluate(world, evaluated, {run.config.run.dir, "newest"}); });
    const json written = json::parse(read_file(run.path / "run" / "evaluation.json"));
    EXPECT_DOUBLE_EQ(written.at("rmse"), before);
    EXPECT_EQ(written.at("outputs"), run.summary().at("valid_outputs"));
    evaluated.data.normalize_targets = false;
    EXPECT_EQ(
        test::message_of(
            [&] {
              run_thread_world(1, [&](World& world) { evaluate(world, evaluated, {run.config.run.dir, "newest"}); });
            },
            Exit::config),
        "data.normalize_targets: the network of the checkpoint was trained with it. set it to on");
  }
}

// Too many outputs for a mean each: they have one.
TEST(EvaluationOfTargets, ManyOutputsAreNormalisedTogether) {
  constexpr std::size_t outputs = 300;
  std::vector<float> y;
  for (std::size_t i = 0; i < LinearRun::rows * outputs; ++i)
    y.push_back(float(i * 13 % 101) * 40 + float(i % outputs));
  double mean = 0, variance = 0;
  for (const float v : y) mean += double(v) / double(y.size());
  for (const float v : y) variance += (double(v) - mean) * (double(v) - mean) / double(y.size());
  for (const int ranks : {1, 2}) {
    LinearRun run(DType::f32, y, Loss::mse);
    run.config.data.normalize_targets = true;
    run.train(ranks);
    auto predictions = run.predictions();
    for (auto& row : predictions)
      for (double& p : row) p = p * std::sqrt(variance) + mean;
    Errors(predictions, run.y).expect(run.summary(), "valid_");
    EXPECT_FALSE(run.summary().contains("valid_outputs"));
  }
}

TEST(EvaluationOfTargets, RefusesToNormaliseWhatIsNoTarget) {
  const auto refusal = [](LinearRun&& run) {
    run.config.data.normalize_targets = true;
    return test::message_of([&] { run.train(1); }, Exit::config);
  };
  EXPECT_EQ(refusal(LinearRun(DType::i32, test::labels_of(4), Loss::automatic)),
            "data.normalize_targets: data.y holds class labels, not targets of a regression. set it to off");
  EXPECT_EQ(
      refusal(LinearRun(DType::f32, std::vector<float>(LinearRun::rows * 2, 1), Loss::binary_cross_entropy)),
      "data.normalize_targets: binary_cross_entropy compares with targets from 0 to 1 as they are. set it to off");
}

}  // namespace regression_test
}  // namespace millrace
