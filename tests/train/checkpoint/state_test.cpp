// Compares the tensors of runs, not only their losses. The tensors are read from the checkpoints of the runs.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "millrace/config/keys.hpp"
#include "millrace/io/hdf5.hpp"
#include "support/expect_error.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace state_test {

using Tensors = std::map<std::string, std::vector<float>>;

Tensors tensors_of(const std::filesystem::path& path) {
  const io::File file = io::File::open(path);
  Tensors out;
  for (const std::string& name : file.datasets()) {
    if (name == "/model") continue;  // text
    const auto shape = file.info(name).shape;
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    out[name].resize(std::size_t(count));
    file.read_rows(name, 0, shape[0], DType::f32, out[name].data());
  }
  return out;
}

// The tensors after the given number of steps.
Tensors after(RunConfig c, std::int64_t steps, int ranks, std::int64_t micro_batch) {
  const test::TemporaryFolder folder;
  c.run.dir = folder.path.string();
  c.train.steps = steps;
  c.train.micro_batch = micro_batch;
  c.optim.schedule = LrSchedule::constant;  // so that the learning rate does not depend on the number of steps
  run_thread_world(ranks, [&](World& world) { train(world, c); });
  return tensors_of(CheckpointStore::list(folder.path / "checkpoints").back());
}

// The tolerance is relative to the largest value of each tensor.
void expect_near(const Tensors& a, const Tensors& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    const auto& others = b.at(name);
    ASSERT_EQ(values.size(), others.size());
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, double(std::abs(values[i])));
      difference = std::max(difference, double(std::abs(values[i] - others[i])));
    }
    EXPECT_LE(difference, tolerance * largest) << what << ": " << name;
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(EqualityOfTensors, RanksAndAccumulationGiveTheSameWeightsAndRunningStatistics) {
  RunConfig c = test::small_run(true);
  c.model.layers.insert(c.model.layers.end() - 1, "dropout 0.2");
  const Tensors reference = after(c, 1, 1, 8);
  ASSERT_TRUE(
      std::any_of(reference.begin(), reference.end(), [](const auto& t) { return t.first.starts_with("/running/"); }));
  for (const int ranks : {2, 3, 4})
    expect_near(reference, after(c, 1, ranks, 8), 1e-5, fmt::format("{} ranks, a step", ranks));
  // 131 rows make 4 steps of 32 and one of 3. With micro-batches of 8, some of the 4 ranks have no row in the last
  // step, and their zeros must not count.
  expect_near(after(c, 5, 1, 8), after(c, 5, 4, 8), 1e-3, "4 ranks, an epoch with its tail");
}

TEST(EqualityOfTensors, AStepThatOverflowsChangesNothing) {
  RunConfig c = test::small_run(true);
  c.run.precision = Precision::fp16;
  c.optim.loss_scale = 1024;
  c.test.force_overflow_at = 3;
  for (const char* optimizer : {"sgd", "adamw", "lars", "lamb"}) {
    find_key("optim.name")->set(c, {optimizer});
    const Tensors before = after(c, 2, 2, 8), skipped = after(c, 3, 2, 8), next = after(c, 4, 2, 8);
    for (const auto& [name, values] : before) {
      EXPECT_TRUE(same_bits(values, skipped.at(name))) << optimizer << ": " << name << " after the skipped step";
      EXPECT_FALSE(same_bits(values, next.at(name))) << optimizer << ": " << name << " after the step that follows";
    }
  }
}

TEST(EqualityOfTensors, AnOverflowAtTheSmallestScaleEndsTheRun) {
  RunConfig c = test::small_run(true);
  c.run.precision = Precision::fp16;
  c.optim.loss_scale = StepState().scale_floor;
  c.test.force_overflow_at = 3;
  test::expect_error(Exit::diverged, "step 3", [&] { test::run(c, 2, 8); });
}

// The parts of the ranks are smaller than the smallest fp16 number, unless they are scaled before they are rounded.
TEST(EqualityOfTensors, SmallGradientsSurviveTheAllReduceInFp16) {
  RunConfig c = test::small_run(false);
  c.data.mean = {0, 0, 0};
  c.data.std = {1e7, 1e7, 1e7};
  c.optim.weight_decay = 0;
  const char* gradient = "/moment1/conv1.weight";  // of SGD after the first step
  const Tensors exact = after(c, 1, 2, 8);
  c.comm.grad_dtype = DType::f16;
  const Tensors rounded = after(c, 1, 2, 8);
  double largest = 0;
  for (const float g : exact.at(gradient)) largest = std::max(largest, double(std::abs(g)));
  EXPECT_LT(largest, 6e-8);
  EXPECT_GT(largest, 0);
  expect_near({{gradient, exact.at(gradient)}}, {{gradient, rounded.at(gradient)}}, 1e-2, "fp16");
}

}  // namespace state_test
}  // namespace millrace
