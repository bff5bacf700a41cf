// optim.ema: the exponential moving average of the weights.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "millrace/base/files.hpp"
#include "millrace/config/keys.hpp"
#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace average_test {

using test::same_bits;
using test::Tensors;

struct AveragedRun : test::TemporaryFolder {
  RunConfig config = test::small_run(true, "96");  // three steps an epoch
  explicit AveragedRun(double decay) {
    config.run.dir = (path / "run").string();
    config.data.valid = {"synthetic:images:rows=40,shape=9x8x3,classes=4,seed=9"};
    config.model.layers = {"conv 16 3x3", "batchnorm", "relu", "conv 24 3x3", "relu", "globalpool", "linear outputs"};
    config.optim.schedule = LrSchedule::constant;
    config.optim.ema = decay;
    config.comm.bucket_size = 4096;
    config.train.micro_batch = 8;
    config.train.evaluate_every = 1;
    config.train.steps = 4;
  }
  void train(int ranks = 1) const {
    run_thread_world(ranks, [&](World& world) { EXPECT_EQ(millrace::train(world, config), Exit::ok); });
  }
  Tensors tensors() const { return test::tensors_of(path / "run"); }
  std::string validations() const { return read_file(path / "run" / "validation.jsonl"); }
  nlohmann::json summary() const { return nlohmann::json::parse(read_file(path / "run" / "summary.json")); }
};

// Calls f(run, ranks, text) with runs of each precision, with and without ZeRO.
template <class F>
void for_all_runs(double decay, const F& f) {
  for (const int ranks : {1, 2})
    for (const int zero : {0, 1})
      for (const auto precision : {Precision::fp32, Precision::bf16}) {
        AveragedRun run(decay);
        run.config.optim.zero = zero;
        run.config.run.precision = precision;
        f(run, ranks, fmt::format("{} ranks, zero {}, {}", ranks, zero, value_text(run.config, "run.precision")));
      }
}

Tensors initial() {
  AveragedRun run(0);
  run.config.optim.lr = 0;
  run.config.train.steps = 1;
  run.train();
  return run.tensors();
}

TEST(Average, FollowsTheWeightsOfEveryStep) {
  const Tensors start = initial();
  for_all_runs(0.75, [&](AveragedRun& run, int ranks, const std::string& what) {
    std::map<std::string, std::vector<double>> expected;
    for (const auto& [name, values] : start)
      if (name.starts_with("/parameters/")) expected[name.substr(12)] = {values.begin(), values.end()};
    for (int step = 1; step <= 4; ++step) {
      run.config.train.steps = step;
      run.train(ranks);
      const Tensors now = run.tensors();
      for (auto& [name, average] : expected) {
        const auto& weights = now.at("/parameters/" + name);
        for (std::size_t i = 0; i < average.size(); ++i) average[i] = 0.75 * average[i] + 0.25 * double(weights[i]);
      }
    }
    const Tensors last = run.tensors();
    for (const auto& [name, average] : expected) {
      const auto& found = last.at("/ema/" + name);
      ASSERT_EQ(found.size(), average.size());
      for (std::size_t i = 0; i < average.size(); ++i) ASSERT_NEAR(found[i], average[i], 1e-6) << what << ": " << name;
    }
  });
}

TEST(Average, ChangesNoBitOfTheTraining) {
  for_all_runs(0.9, [&](AveragedRun& run, int ranks, const std::string& what) {
    AveragedRun plain(0);
    plain.config.optim.zero = run.config.optim.zero;
    plain.config.run.precision = run.config.run.precision;
    plain.train(ranks);
    run.train(ranks);
    const Tensors averaged = run.tensors();
    for (const auto& [name, values] : plain.tensors())
      EXPECT_TRUE(same_bits(values, averaged.at(name))) << what << name;
    EXPECT_NE(run.validations(), plain.validations()) << what;
  });
}

TEST(Average, IsTheSameWithZero) {
  for (const auto precision : {Precision::fp32, Precision::bf16}) {
    AveragedRun plain(0.9), zero(0.9);
    zero.config.optim.zero = 1;
    plain.config.run.precision = zero.config.run.precision = precision;
    plain.train(2);
    zero.train(2);
    const Tensors sharded = zero.tensors();
    for (const auto& [name, values] : plain.tensors()) EXPECT_TRUE(same_bits(values, sharded.at(name))) << name;
    EXPECT_EQ(zero.validations(), plain.validations());
  }
}

// Averages that hardly move: the evaluations are those of the initial weights.
TEST(Average, EvaluationsUseIt) {
  for_all_runs(1 - 1e-9, [&](AveragedRun& run, int ranks, const std::string& what) {
    AveragedRun still(0);
    for (AveragedRun* each : {&run, &still}) each->config.model.layers.erase(each->config.model.layers.begin() + 1);
    still.config.optim.lr = 0;
    still.config.run.precision = run.config.run.precision;
    still.train(ranks);
    run.train(ranks);
    const double loss = run.summary().at("valid_loss");
    EXPECT_NEAR(loss, still.summary().at("valid_loss"), 1e-6) << what;
    const auto evaluated = [&] {
      testing::internal::CaptureStdout();
      run_thread_world(ranks, [&](World& world) { evaluate(world, run.config, {run.config.run.dir, "newest"}); });
      return testing::internal::GetCapturedStdout();
    };
    EXPECT_NE(evaluated().find(fmt::format("validation loss {:.4f}", loss)), std::string::npos) << what;
    run.config.optim.ema = 0;  // the weights
    EXPECT_EQ(evaluated().find(fmt::format("validation loss {:.4f}", loss)), std::string::npos) << what;
  });
}

TEST(Average, AResumedRunEqualsAnUninterruptedOne) {
  AveragedRun once(0.9), twice(0.9);
  once.config.train.steps = 6;
  once.train();
  twice.config.train.steps = 2;
  twice.train();
  twice.config.train.steps = 6;
  twice.train();
  const Tensors resumed = twice.tensors();
  for (const auto& [name, values] : once.tensors()) EXPECT_TRUE(same_bits(values, resumed.at(name))) << name;
}

TEST(Average, CannotBeginInTheMiddleOfARun) {
  AveragedRun run(0);
  run.train();
  run.config.optim.ema = 0.9;
  run.config.train.steps = 6;
  test::expect_error(Exit::config, "(ema/conv1.weight is missing)", [&] { run.train(); });
}

}  // namespace average_test
}  // namespace millrace
