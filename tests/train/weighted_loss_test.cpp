// Losses and gradients where labels have weights, or do not count.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <tuple>

#include "train/linear_run.hpp"

namespace millrace {
namespace weighted_loss_test {

using test::LinearRun, test::labels_of;

struct WeightedLoss {
  double loss = 0;
  std::array<double, 3> bias_gradient{};
};
// Of all samples, for three classes, by the weights in the checkpoint.
WeightedLoss weighted_cross_entropy(const LinearRun& run) {
  WeightedLoss out;
  double total = 0;
  const auto logits = run.predictions();
  for (std::size_t r = 0; r < logits.size(); ++r) {
    if (run.y[r] < 0) continue;
    double sum = 0;
    for (const double z : logits[r]) sum += std::exp(z);
    const auto label = std::size_t(run.y[r]);
    const auto& weights = run.config.model.class_weights;
    const double weight = weights.empty() ? 1 : std::stod(weights[label]);
    out.loss += weight * (std::log(sum) - logits[r][label]);
    for (std::size_t c = 0; c < 3; ++c) out.bias_gradient[c] += weight * (std::exp(logits[r][c]) / sum - (c == label));
    total += weight;
  }
  out.loss /= total;
  for (double& g : out.bias_gradient) g /= total;
  return out;
}

TEST(WeightedLoss, TheLossOfASampleHasTheWeightOfItsClass) {
  for (const bool strict : {false, true}) {
    LinearRun run(DType::i32, labels_of(3), Loss::cross_entropy);
    run.config.model.class_weights = {"0.5", "2", "6"};
    if (strict) run.config.run.reproducible = Reproducible::strict;
    run.train(2);
    EXPECT_NEAR(run.summary().at("valid_loss"), weighted_cross_entropy(run).loss, 1e-6);
  }
}

// The gradient is that of the mean over the labels that count, although micro-batches and ranks have different numbers
// of them. It is found from two runs of one step, because their weights begin alike.
TEST(WeightedLoss, TheGradientIsDividedByTheWeightOfTheLabelsThatCount) {
  for (const std::vector<std::string>& weights :
       {std::vector<std::string>(), std::vector<std::string>{"0.5", "2", "6"}})
    for (const auto& [ranks, strict, zero] :
         {std::tuple(1, false, false), {3, false, false}, {3, true, false}, {2, false, true}}) {
      LinearRun run(DType::i32, labels_of(3), Loss::cross_entropy);
      run.config.model.class_weights = weights;
      run.config.train.global_batch = LinearRun::rows;
      run.config.train.micro_batch = 5;
      run.config.optim.schedule = LrSchedule::constant;
      run.config.optim.momentum = 0;
      run.config.optim.weight_decay = 0;
      run.config.optim.zero = zero;
      if (strict) run.config.run.reproducible = Reproducible::strict;
      std::array<std::vector<float>, 2> biases;
      for (const std::size_t twice : {1u, 0u}) {
        run.config.optim.lr = twice ? 2e-3 : 1e-3;
        run.train(ranks);
        biases[twice] = test::tensors_of(run.path / "run").at("/parameters/linear1.bias");
      }
      const WeightedLoss expected = weighted_cross_entropy(run);  // of weights that differ a little from the first ones
      EXPECT_NEAR(test::metrics_of(run.path / "run").at(0).at("loss"), expected.loss, 2e-3);
      for (std::size_t c = 0; c < 3; ++c)
        EXPECT_NEAR((biases[0][c] - biases[1][c]) / 1e-3f, expected.bias_gradient[c], 2e-3)
            << "class " << c << ", ranks " << ranks << ", strict " << strict << ", zero " << zero;
    }
}

// All labels count, with the weight 1: nothing changes. The loss sees fewer labels of a sample than the file has.
TEST(WeightedLoss, ASampleThatIsCutHasFewerLabels) {
  const test::TemporaryFolder folder;
  const std::int64_t rows = 12;
  std::vector<float> x;
  std::vector<std::uint8_t> y;
  for (std::int64_t i = 0; i < rows * 64; ++i) {
    x.push_back(float(i * 37 % 101) / 50 - 1);
    y.push_back(std::uint8_t(i * 7 / 3 % 3));
  }
  {
    io::File file = io::File::create((folder.path / "data.h5").string());
    file.create_dataset("/x", DType::f32, {rows, 8, 8, 1});
    file.write_rows("/x", 0, rows, DType::f32, x.data());
    file.create_dataset("/y", DType::u8, {rows, 8, 8});
    file.write_rows("/y", 0, rows, DType::u8, y.data());
  }
  RunConfig c = test::small_run(false);
  c.data.train = {(folder.path / "data.h5").string()};
  c.data.normalize = c.data.augment = false;
  c.data.subvolume = {4, 4};
  c.model.layers = {"conv outputs 1"};
  c.train.global_batch = rows;
  c.optim.momentum = 0;
  std::array<test::Tensors, 2> after;
  for (const std::size_t weighted : {0, 1}) {
    if (weighted) c.model.class_weights = {"1", "1", "1"};
    c.run.dir = (folder.path / (weighted ? "weighted" : "plain")).string();
    run_thread_world(1, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); });
    after[weighted] = test::tensors_of(c.run.dir);
  }
  EXPECT_TRUE(test::same_bits(after[0].at("/parameters/conv1.weight"), after[1].at("/parameters/conv1.weight")));
}

TEST(WeightedLoss, AStepWithoutAnyWeightChangesNothing) {
  std::vector<std::int32_t> labels(LinearRun::rows, 0);
  labels.back() = 1;
  LinearRun run(DType::i32, labels, Loss::cross_entropy);
  run.config.model.class_weights = {"0", "1"};
  run.config.train.steps = 3;
  run.train(2);  // some steps have no label but 0
}

}  // namespace weighted_loss_test
}  // namespace millrace
