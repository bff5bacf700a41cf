#include "train/checkpoint/checkpoint.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace checkpoint_test {

namespace fs = std::filesystem;

// One side of a comparison, with its own network.
struct Side {
  std::unique_ptr<World> world = solo_world();
  ExecutionContext compute;
  std::unique_ptr<Network> network;
  explicit Side(std::int64_t width = 8, std::uint64_t seed = 1) {
    compute = make_cpu_context(*world, {});
    NetworkSpec spec;
    spec.model.name = "layers";
    spec.model.layers = {fmt::format("conv {} 3x3", width), "batchnorm", "relu", "globalpool", "linear outputs"};
    spec.batch = {0, {8, 8, 3}, DType::u8, {}, true};
    spec.train_rows = {4};
    spec.optimizer.kind = OptimizerSpec::Kind::adamw;
    spec.seed = seed;
    network = std::make_unique<Network>(compute, spec);
  }
  void scramble() {
    for (std::int64_t i = 0; i < network->layout().count; ++i) {
      network->moment(0)[i] = float(i) / 7;
      network->moment(1)[i] = 1 / float(i + 1);
    }
  }
  bool equals(const Side& other) const {
    const std::size_t bytes = std::size_t(network->layout().count) * 4;
    const auto same = [&](int m) {  // padding is not part of a checkpoint
      for (const auto& slot : network->layout().parameters)
        if (std::memcmp(network->moment(m) + slot.begin, other.network->moment(m) + slot.begin,
                        std::size_t(slot.count) * 4) != 0)
          return false;
      return true;
    };
    return std::memcmp(network->master(), other.network->master(), bytes) == 0 && same(0) && same(1) &&
           std::memcmp(network->running(), other.network->running(), std::size_t(network->layout().stats_count) * 4) ==
               0;
  }
};

RunState state_at(std::int64_t step) {
  RunState r;
  r.step = step;
  r.samples = 10 * step;
  r.state.loss_scale = 0.1f;
  return r;
}

void damage(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(std::streamoff(fs::file_size(path) / 2));
  for (int i = 0; i < 600; ++i) file.put('x');
}

TEST(Checkpoint, ALoadedCheckpointEqualsTheSavedOne) {
  const test::TemporaryFolder folder;
  Side a(8, 1), b(8, 2);
  a.scramble();
  EXPECT_FALSE(a.equals(b));
  CheckpointStore store(*a.world, a.compute, folder.path, 3);
  EXPECT_EQ(store.save(*a.network, state_at(7)), "");
  CheckpointStore other(*b.world, b.compute, folder.path, 3);
  const auto found = other.load_newest(*b.network);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 7);
  EXPECT_EQ(found->state.loss_scale, 0.1f);
  EXPECT_TRUE(a.equals(b));
}

TEST(Checkpoint, DamagedCheckpointsAreSkippedForAnEarlierOne) {
  const test::TemporaryFolder folder;
  Side a, b(8, 2);
  CheckpointStore store(*a.world, a.compute, folder.path, 5);
  for (int step = 1; step <= 4; ++step) ASSERT_EQ(store.save(*a.network, state_at(step)), "");
  const auto files = CheckpointStore::list(folder.path);
  damage(files[3]);
  fs::resize_file(files[2], fs::file_size(files[2]) - 100);
  fs::resize_file(files[1], 0);
  const auto found = CheckpointStore(*b.world, b.compute, folder.path, 5).load_newest(*b.network);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 1);
  EXPECT_TRUE(a.equals(b));
  damage(files[0]);
  EXPECT_THROW(store.load_newest(*a.network), Error);  // it must not silently start from the beginning
}

TEST(Checkpoint, AnotherModelIsRefusedAndTheTensorNamed) {
  const test::TemporaryFolder folder;
  Side a(8), b(16);
  CheckpointStore(*a.world, a.compute, folder.path, 3).save(*a.network, state_at(1));
  test::expect_error(Exit::config, "conv1.weight has another shape",
                     [&] { CheckpointStore(*b.world, b.compute, folder.path, 3).load_newest(*b.network); });
}

TEST(Checkpoint, TheNewestAndTheBestAreKept) {
  const test::TemporaryFolder folder;
  Side a;
  CheckpointStore store(*a.world, a.compute, folder.path, 2);
  const double accuracy[] = {0.5, 0.9, 0.6, 0.7, 0.8};
  double best = -1;
  std::int64_t best_step = -1;
  for (int i = 0; i < 5; ++i) {
    RunState r = state_at(i + 1);
    r.valid_accuracy = accuracy[i];
    r.valid_step = i + 1;
    if (accuracy[i] > best) {
      best = accuracy[i];
      best_step = i + 1;
    }
    r.best_metric = "accuracy";
    r.best_value = best;
    r.best_step = best_step;
    ASSERT_EQ(store.save(*a.network, r), "");
  }
  std::vector<std::string> names;
  for (const auto& f : CheckpointStore::list(folder.path)) names.push_back(f.filename().string());
  EXPECT_EQ(names, (std::vector<std::string>{"step-00000002.h5", "step-00000004.h5", "step-00000005.h5"}));
}

}  // namespace checkpoint_test
}  // namespace millrace
