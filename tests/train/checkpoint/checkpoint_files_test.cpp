// Checkpoints as files: damage by one flipped bit, and loading on another number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "millrace/train/checkpoint/describe_checkpoint.hpp"
#include "support/expect_error.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace checkpoint_files_test {

namespace fs = std::filesystem;

NetworkSpec small(OptimizerSpec::Kind optimizer = OptimizerSpec::Kind::sgd, std::uint64_t seed = 1) {
  NetworkSpec spec;
  spec.model.name = "layers";
  spec.model.layers = {"conv 8 3x3", "batchnorm", "relu", "globalpool", "linear outputs"};
  spec.batch = {0, {8, 8, 3}, DType::u8, {}, true};
  spec.train_rows = {4};
  spec.optimizer.kind = optimizer;
  spec.seed = seed;
  return spec;
}

std::vector<char> bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Checkpoint, OneFlippedBitInAnyTensorIsDetected) {
  const test::TemporaryFolder folder;
  const auto world = solo_world();
  ExecutionContext compute = make_cpu_context(*world, {});
  Network network(compute, small());
  for (std::int64_t i = 0; i < network.layout().count; ++i) network.moment(0)[i] = 1 / float(i + 3);
  for (std::int64_t i = 0; i < network.layout().stats_count; ++i) network.running()[i] = 1 / float(i + 5);
  CheckpointStore store(*world, compute, folder.path, 5);
  ASSERT_EQ(store.save(network, test::at_step(1)), "");
  const fs::path path = CheckpointStore::list(folder.path).front();
  const std::vector<char> intact = bytes_of(path);
  const ParameterLayout& layout = network.layout();
  std::vector<std::pair<const float*, std::int64_t>> tensors;
  for (const auto& slot : layout.parameters) {
    tensors.emplace_back(network.moment(0) + slot.begin, slot.count);
    tensors.emplace_back(network.running(), 4);
  }
  tensors.emplace_back(network.master() + layout.parameters[0].begin, layout.parameters[0].count);
  for (const auto& [data, count] : tensors) {
    const char* begin = reinterpret_cast<const char*>(data);
    const auto found = std::search(intact.begin(), intact.end(), begin, begin + count * 4);
    ASSERT_NE(found, intact.end()) << "the file does not contain the tensor as it is in memory";
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(found - intact.begin() + count * 2);
    file.put(char(intact[std::size_t(found - intact.begin() + count * 2)] ^ 4));
    file.close();
    Network target(compute, small(OptimizerSpec::Kind::sgd, 2));
    try {
      store.load(target, path);
      ADD_FAILURE() << "a flipped bit was not detected";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::data);
      EXPECT_NE(std::string(e.what()).find("checksum"), std::string::npos) << e.what();
    }
    const CheckpointText seen = describe_checkpoint(path);
    EXPECT_NE(seen.text.find("DIFFERS FROM THE STORED CHECKSUM"), std::string::npos);
    EXPECT_NE(seen.damage.find("is damaged: the checksum of /"), std::string::npos) << seen.damage;
    std::ofstream(path, std::ios::binary).write(intact.data(), std::streamsize(intact.size()));
  }
}

TEST(Checkpoint, ADamagedNameIsNotMistakenForAnotherModel) {
  const test::TemporaryFolder folder;
  const auto world = solo_world();
  ExecutionContext compute = make_cpu_context(*world, {});
  Network network(compute, small());
  CheckpointStore store(*world, compute, folder.path, 5);
  ASSERT_EQ(store.save(network, test::at_step(1)), "");
  ASSERT_EQ(store.save(network, test::at_step(2)), "");
  const fs::path newest = CheckpointStore::list(folder.path).back();
  std::vector<char> bytes = bytes_of(newest);
  const std::string name = "linear";
  std::size_t changed = 0;
  for (auto at = bytes.begin();; at += 1, ++changed) {
    at = std::search(at, bytes.end(), name.begin(), name.end());
    if (at == bytes.end()) break;
    *at = 'n';  // "ninear" keeps the order of the names
  }
  ASSERT_GT(changed, 0u);
  std::ofstream(newest, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
  EXPECT_EQ(store.load_newest(network)->step, 1);
}

TEST(Checkpoint, AnotherOptimizerIsRefusedAndTheTensorNamed) {
  const test::TemporaryFolder folder;
  const auto world = solo_world();
  ExecutionContext compute = make_cpu_context(*world, {});
  Network sgd(compute, small()), adamw(compute, small(OptimizerSpec::Kind::adamw));
  CheckpointStore store(*world, compute, folder.path, 5);
  ASSERT_EQ(store.save(sgd, test::at_step(1)), "");
  test::expect_error(Exit::config, "moment2/", [&] { store.load_newest(adamw); });
}

TEST(Checkpoint, ACheckpointLoadsOnAnyNumberOfRanks) {
  const test::TemporaryFolder folder;
  std::vector<float> saved;
  run_thread_world(3, [&](World& world) {
    ExecutionContext compute = make_cpu_context(world, {});
    Network network(compute, small(OptimizerSpec::Kind::sgd, 7));
    if (world.rank() == 0) saved.assign(network.master(), network.master() + network.layout().count);
    EXPECT_EQ(CheckpointStore(world, compute, folder.path, 5).save(network, test::at_step(3)), "");
  });
  for (const int ranks : {1, 2, 4})
    run_thread_world(ranks, [&](World& world) {
      ExecutionContext compute = make_cpu_context(world, {});
      Network network(compute, small(OptimizerSpec::Kind::sgd, 8));
      const auto found = CheckpointStore(world, compute, folder.path, 5).load_newest(network);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->step, 3);
      EXPECT_EQ(std::memcmp(network.master(), saved.data(), saved.size() * 4), 0) << "rank " << world.rank();
    });
}

TEST(Checkpoint, AFailureToWriteReturnsAMessageAndLeavesNoFile) {
  const test::TemporaryFolder folder;
  run_thread_world(2, [&](World& world) {
    ExecutionContext compute = make_cpu_context(world, {});
    Network network(compute, small());
    CheckpointStore store(world, compute, folder.path / "missing", 5);
    EXPECT_NE(store.save(network, test::at_step(1)), "");
  });
  EXPECT_TRUE(fs::is_empty(folder.path));
}

// Of another program, or of millrace without a configuration; a name could steer the terminal.
TEST(Checkpoint, TensorsOfForeignWeightsAreListedAsOneLineEach) {
  const test::TemporaryFolder folder;
  const std::string path = (folder.path / "a.safetensors").string();
  const auto described = [&](const std::string& metadata) {
    const std::string header =
        "{" + metadata + R"("a\u001b[2J\nb": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
    const std::uint64_t length = header.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << "1234";
    out.close();
    return describe_safetensors(path, true).text;
  };
  const std::string listed = "  a?[2J?b  F32 (1,)\n1 tensors with 1 values\n";
  EXPECT_EQ(described(""), path + ": weights of another program\n" + listed);
  EXPECT_EQ(described(R"("__metadata__": {"millrace": "1"}, )"), path + ": weights without a configuration\n" + listed);
}

}  // namespace checkpoint_files_test
}  // namespace millrace
