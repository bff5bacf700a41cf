// Training on an asynchronous fake GPU that captures its steps and runs the CUDA backend's kernels, compared with the
// same training on the CPU.
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "millrace/config/keys.hpp"
#include "support/fake_gpu.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace training_test {

using namespace test;

struct Line {
  double loss, grad_norm, loss_scale, lr;
  bool skipped;
};

std::vector<Line> metrics(const std::filesystem::path& dir) {
  std::vector<Line> lines;
  std::ifstream in(dir / "metrics.jsonl");
  for (std::string text; std::getline(in, text);) {
    const auto j = nlohmann::json::parse(text);
    lines.push_back(
        {j["loss"], j["grad_norm"].is_null() ? -1 : double(j["grad_norm"]), j["loss_scale"], j["lr"], j["skipped"]});
  }
  return lines;
}

std::vector<Line> run(RunConfig c, DeviceChoice device, int ranks, const std::filesystem::path& dir) {
  c.run.device = device;
  c.run.dir = dir.string();
  run_thread_world(ranks, [&](World& world) { EXPECT_EQ(train(world, c), Exit::ok); });
  return metrics(dir);
}

void expect_same_training(const RunConfig& c, int ranks, double tolerance) {
  const TemporaryFolder folder;
  const auto expected = run(c, DeviceChoice::cpu, ranks, folder.path / "cpu");
  const auto actual = run(c, DeviceChoice::cuda, ranks, folder.path / "replayed");
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_GE(actual.size(), 8u);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i].loss, expected[i].loss, tolerance * expected[i].loss) << "step " << i + 1;
    EXPECT_EQ(actual[i].loss_scale, expected[i].loss_scale) << "step " << i + 1;
    EXPECT_EQ(actual[i].lr, expected[i].lr) << "step " << i + 1;
    EXPECT_EQ(actual[i].skipped, expected[i].skipped) << "step " << i + 1;
  }
}

TEST(ReplayedTraining, AutoChoosesTheSameDeviceOnAllRanks) {
  const TemporaryFolder folder;
  for (const int without : {0, 1, 2}) {  // number of ranks, of two, that have no GPU
    RunConfig c = small_run(false);
    c.run.device = DeviceChoice::automatic;
    c.run.dir = (folder.path / std::to_string(without)).string();
    testing::internal::CaptureStdout();
    std::atomic<int> refused{0};
    run_thread_world(2, [&](World& world) {
      if (world.rank() >= 2 - without) missing_gpu_reason() = "no driver here. install one";
      try {
        EXPECT_EQ(train(world, c), Exit::ok);
      } catch (const Error& e) {
        const std::string text = e.what();
        EXPECT_EQ(e.code(), Exit::config);
        EXPECT_EQ(text.find("[rank 1 @ "), 0u) << text;
        EXPECT_NE(text.find("] run.device: no driver here. install one (other ranks have a GPU)"), text.npos) << text;
        ++refused;
      }
    });
    const std::string words = testing::internal::GetCapturedStdout();
    EXPECT_EQ(refused, without == 1 ? 2 : 0);
    EXPECT_EQ(words.find(", cpu (no driver here), ") != words.npos, without == 2) << words;
  }
}

TEST(ReplayedTraining, EqualsTheCpuInFloat32) { expect_same_training(small_run(true), 1, 2e-4); }
TEST(ReplayedTraining, EqualsTheCpuOnTwoRanks) { expect_same_training(small_run(true), 2, 2e-4); }

TEST(ReplayedTraining, EqualsTheCpuWithAccumulation) {
  RunConfig c = small_run(true);
  c.train.micro_batch = 5;
  expect_same_training(c, 2, 2e-4);
}

// Three ranks with up to three micro-batches; in the last step of an epoch, two have none.
TEST(ReplayedTraining, EqualsTheCpuWithSynchronisedNorms) {
  RunConfig c = small_run(true);
  c.model.sync_batch_norm = true;
  c.train.micro_batch = 4;
  expect_same_training(c, 3, 2e-4);
  c.optim.zero = 1;
  c.comm.bucket_size = 4096;
  expect_same_training(c, 2, 2e-4);
}

TEST(ReplayedTraining, EqualsTheCpuAtFusionLevelsTwoAndThree) {
  RunConfig c = fused_run(2);
  c.train.micro_batch = 16;
  expect_same_training(c, 1, 2e-4);
  c.model.fusion = 3;
  c.run.precision = Precision::fp16;
  expect_same_training(c, 1, 2e-2);
}

// Each rank has four micro-batches. In the last step of an epoch one rank has one and the other has none.
TEST(ReplayedTraining, ReplaysTheSameCapturesAfterAnUnevenStep) {
  RunConfig c = small_run(true);
  c.train.micro_batch = 4;
  expect_same_training(c, 2, 2e-4);
}

TEST(ReplayedTraining, SkipsOverflowsInHalfPrecision) {
  RunConfig c = small_run(true);
  c.run.precision = Precision::fp16;
  c.optim.scale_interval = 3;
  c.test.force_overflow_at = 4;
  expect_same_training(c, 1, 2e-2);
}

TEST(ReplayedTraining, EqualsTheCpuWithSixteenBitGradients) {
  RunConfig c = small_run(false);
  c.comm.grad_dtype = DType::bf16;
  c.optim.name = OptimizerName::adamw;
  c.optim.lr = 1e-3;
  expect_same_training(c, 2, 2e-3);
}

TEST(ReplayedTraining, ZeroChangesNoBit) {
  for (const auto& [optimizer, precision] : {std::pair{"adamw", Precision::fp16}, {"lamb", Precision::fp32}}) {
    const TemporaryFolder folder;
    const bool half = precision == Precision::fp16;
    RunConfig c = small_run(true);
    c.model.layers.insert(c.model.layers.begin() + 3, {"conv 64 3x3", "relu"});  // 5000 parameters
    find_key("optim.name")->set(c, {optimizer});
    c.optim.lr = 0.01;
    c.optim.clip = 0.5;
    c.optim.schedule = LrSchedule::constant;
    c.run.precision = precision;
    if (half) c.test.force_overflow_at = 3;
    c.train.micro_batch = 8;
    c.train.steps = 4;
    c.comm.bucket_size = 4096;
    const auto expected = run(c, DeviceChoice::cuda, 2, folder.path / "whole");
    c.optim.zero = 1;
    const auto actual = run(c, DeviceChoice::cuda, 2, folder.path / "divided");
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(actual[i].loss, expected[i].loss) << optimizer << ", step " << i + 1;
      EXPECT_EQ(actual[i].grad_norm, expected[i].grad_norm) << optimizer << ", step " << i + 1;
      EXPECT_EQ(actual[i].skipped, half && i == 2) << optimizer << ", step " << i + 1;
    }
    // The moments are equal too: the checkpoint contains those of all ranks.
    c.optim.zero = 0;
    c.train.steps = 6;
    const auto after = run(c, DeviceChoice::cuda, 2, folder.path / "whole");
    const auto resumed = run(c, DeviceChoice::cuda, 2, folder.path / "divided");
    ASSERT_EQ(resumed.size(), after.size());
    ASSERT_EQ(after.size(), 6u);
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(resumed[i].loss, after[i].loss) << "step " << i + 1;
  }
}

TEST(ReplayedTraining, ResumesBitwiseEqualFromACheckpoint) {
  const TemporaryFolder folder;
  RunConfig c = small_run(true);
  c.checkpoint.every = "3";
  c.optim.schedule = LrSchedule::constant;  // does not depend on where a run ends
  c.model.layers.insert(c.model.layers.begin() + 2, "dropout 0.2");
  const auto whole = run(c, DeviceChoice::cuda, 1, folder.path / "whole");
  RunConfig part = c;
  part.train.steps = 6;
  run(part, DeviceChoice::cuda, 1, folder.path / "parts");
  const auto parts = run(c, DeviceChoice::cuda, 1, folder.path / "parts");
  ASSERT_EQ(parts.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(parts[i].loss, whole[i].loss) << "step " << i + 1;
}

// The error message of a run in which the operation `piece` fails at its nth execution, counted from 1.
std::string failure_in(RunConfig c, const std::string& piece, int nth) {
  const TemporaryFolder folder;
  c.run.device = DeviceChoice::cuda;
  c.run.dir = folder.path.string();
  fake_gpu().kernels = false;
  fake_gpu().fails_in = piece;
  fake_gpu().fails_after = nth - 1;
  std::string text = "no failure";
  run_thread_world(1, [&](World& world) {
    try {
      train(world, c);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::comm);
      text = e.what();
    }
  });
  fake_gpu().fails_in.clear();
  fake_gpu().kernels = true;
  return text;
}

// Steps 1 and 2 are eager, and steps from 3 on are replayed. The host notices a failure one step later.
TEST(ReplayedFaults, NameTheOperationAndTheStepWithBreadcrumbs) {
  RunConfig c = small_run(false);
  c.cuda.breadcrumbs = CudaOptions::Breadcrumbs::each;
  const std::string front = "illegal address; the GPU was at ";
  EXPECT_EQ(failure_in(c, "conv1 forward", 2), front + "step 2, conv1 forward");
  EXPECT_EQ(failure_in(c, "linear1 backward", 3), front + "step 3, linear1 backward");
  EXPECT_EQ(failure_in(c, "optimizer", 2 * 6), front + "step 6, optimizer");  // the optimizer has two kernels
  c.cuda.graph = false;
  EXPECT_EQ(failure_in(c, "linear1 backward", 5), front + "step 5, linear1 backward");
}

// A step has two micro-batches and so 25 operations, with a breadcrumb at the first and the 16th.
TEST(ReplayedFaults, NameARangeOfOperationsWithSomeBreadcrumbs) {
  RunConfig c = small_run(false);
  c.train.micro_batch = 16;
  c.cuda.breadcrumbs = CudaOptions::Breadcrumbs::some;
  const std::string front = "illegal address; the GPU was at step 4, one of the ";
  EXPECT_EQ(failure_in(c, "conv1 forward", 7), front + "15 from conv1 weights to relu1 forward");
  EXPECT_EQ(failure_in(c, "conv1 backward", 8), front + "10 from globalpool1 forward to optimizer");
  c.cuda.breadcrumbs = CudaOptions::Breadcrumbs::none;
  EXPECT_EQ(failure_in(c, "conv1 backward", 8), "illegal address; place unknown");
}

nlohmann::json account_of(const std::filesystem::path& dir) {
  std::ifstream in(dir / "summary.json");
  return nlohmann::json::parse(in)["account"]["ranks"];
}

TEST(ReplayedTracing, TracedStepsAreInTheSummaryAndTracingChangesNoBit) {
  const TemporaryFolder folder;
  RunConfig c = small_run(true);
  c.train.epochs = 5;
  const auto plain = run(c, DeviceChoice::cuda, 2, folder.path / "plain");
  EXPECT_FALSE(account_of(folder.path / "plain")[0].contains("device")) << "off unless asked for";
  c.run.profile = 4;
  const auto traced = run(c, DeviceChoice::cuda, 2, folder.path / "traced");
  ASSERT_EQ(traced.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(traced[i].loss, plain[i].loss) << "step " << i + 1;
  const auto ranks = account_of(folder.path / "traced");
  ASSERT_EQ(ranks.size(), 2u);
  for (const auto& rank : ranks) {
    const auto& device = rank["device"];
    EXPECT_EQ(device["steps"], 4) << "one window in 25 steps";
    EXPECT_GT(device["busy_seconds"], 0);
    EXPECT_LT(device["busy_seconds"], device["seconds"]);
    EXPECT_LT(device["seconds"], rank["wall_seconds"]);
    std::map<std::string, int> launches;
    for (const auto& k : device["kernels"]) launches[k["name"]] = k["launches"];
    // One micro-batch per step: input, conv, batch norm with relu, pool, linear, loss. The input has no backward pass.
    EXPECT_EQ(launches["forward_kernel"], 4 * 6);
    EXPECT_EQ(launches["backward_kernel"], 4 * 5);
    EXPECT_EQ(rank["health"]["clock_mhz"], 1200);
    EXPECT_EQ(rank["health"]["slowed"]["power cap"], 1);
  }
}

}  // namespace training_test
}  // namespace millrace
