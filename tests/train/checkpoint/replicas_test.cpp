// Ranks whose copy of the model differs, and the pieces of a checkpoint that each rank writes.
#include "train/checkpoint/replicas.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>

#include "support/expect_error.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/runs.hpp"
#include "train/step/equal_bits.hpp"

namespace millrace {
namespace replicas_test {

NetworkSpec wide(std::uint64_t seed = 1) {
  NetworkSpec spec;
  spec.model.name = "mlp";
  spec.model.hidden = {1500, 1200};  // a tensor of 7 MB has several stripes
  spec.batch = {0, {8, 8, 1}, DType::u8, {}, true};
  spec.train_rows = {4};
  spec.seed = seed;
  return spec;
}

void flip_one_bit(float& value) { value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1); }

TEST(Replicas, ADifferingBitEndsTheSaveAndTheLastCheckpointStays) {
  const test::TemporaryFolder folder;
  run_thread_world(3, [&](World& world) {
    ExecutionContext compute = make_cpu_context(world, {});
    Network network(compute, wide());
    CheckpointStore store(world, compute, folder.path, 1);
    ASSERT_EQ(store.save(network, test::at_step(1)), "");
    if (world.rank() == 1) flip_one_bit(network.master()[network.layout().parameters[2].begin + 77]);
    const std::string name = network.graph().parameters[2].name;
    test::expect_error(Exit::comm, "parameters/" + name + " of rank 1 on ",
                       [&] { store.begin(network, test::at_step(2)); });
  });
  ASSERT_EQ(CheckpointStore::list(folder.path).size(), 1u);
  const auto world = solo_world();
  ExecutionContext compute = make_cpu_context(*world, {});
  Network other(compute, wide(2));
  EXPECT_EQ(CheckpointStore(*world, compute, folder.path, 1).load_newest(other)->step, 1);
}

TEST(Replicas, InitialWeightsAreThoseOfRankZero) {
  std::vector<float> first;
  run_thread_world(2, [&](World& world) {
    ExecutionContext compute = make_cpu_context(world, {});
    NetworkSpec spec = wide();
    spec.optimizer.average = 0.1f;
    Network network(compute, spec);
    if (world.rank() == 1) {
      flip_one_bit(network.master()[5]);
      flip_one_bit(network.average()[7]);
    }
    EXPECT_NE(differing_replicas(world, *compute.device, checkpoint_tensors(network)), "");
    copy_replicas(world, *compute.device, network);
    EXPECT_EQ(differing_replicas(world, *compute.device, checkpoint_tensors(network)), "");
  });
}

TEST(Replicas, AWrongGradientOnOneRankEndsTheRunAtThatStep) {
  const test::TemporaryFolder folder;
  RunConfig c = test::small_run(true);
  c.run.dir = (folder.path / "run").string();
  c.checkpoint.every = "3";
  c.test.damage_gradient_at = 5;
  test::expect_error(Exit::comm, "step 5: the gradient norm differs between ranks, and parameters/",
                     [&] { run_thread_world(2, [&](World& world) { train(world, c); }); });
  EXPECT_EQ(test::metrics_of(c.run.dir).size(), 5u);
  const auto kept = CheckpointStore::list(folder.path / "run" / "checkpoints");
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept.front().filename(), "step-00000003.h5");
  std::ifstream summary(folder.path / "run" / "summary.json");
  EXPECT_EQ(nlohmann::json::parse(summary).at("status"), "replicas_differ");
}

// Every element of every tensor belongs to exactly one piece, and no stripe of replicated tensors has two writers.
void expect_exact_cover(const CheckpointTensors& all, const std::vector<Piece>& pieces,
                        const std::vector<std::int64_t>& offsets, bool sharded) {
  std::size_t next = 0;
  std::map<std::int64_t, int> writer_of_stripe;
  for (std::size_t t = 0; t < all.tensors.size(); ++t) {
    std::int64_t at = 0;
    for (; next < pieces.size() && pieces[next].tensor == int(t); ++next) {
      const Piece& piece = pieces[next];
      EXPECT_EQ(piece.begin, at);
      EXPECT_GT(piece.count, 0);
      at += piece.count;
      if (sharded) continue;
      const std::int64_t stripe = (offsets[t] + piece.begin * 4 + 3) >> 22;
      const auto [known, added] = writer_of_stripe.emplace(stripe, piece.rank);
      EXPECT_TRUE(added || known->second == piece.rank) << "stripe " << stripe << " has two writers";
    }
    EXPECT_EQ(at, all.tensors[t].shape.count()) << all.tensors[t].name;
  }
  EXPECT_EQ(next, pieces.size());
}

TEST(Pieces, CoverAllTensorsOnce) {
  const auto world = solo_world();
  ExecutionContext compute = make_cpu_context(*world, {});
  Network network(compute, wide());
  CheckpointTensors all = checkpoint_tensors(network);
  std::vector<std::int64_t> offsets;
  std::int64_t at = 2048;
  for (const NamedTensor& t : all.tensors) {
    offsets.push_back(at);
    at += (t.bytes() + 4095) / 4096 * 4096 + 2;  // elements may cross the end of a stripe
  }
  for (const std::vector<int>& writers : {std::vector<int>{0}, {0, 4}, {0, 1, 2, 3, 4}})
    expect_exact_cover(all, plan_pieces(all, network.buckets(), offsets, writers), offsets, false);
  BucketSpec buckets;
  buckets.ranks = 3;
  buckets.elements = 100'000;
  for (FlatBuffer& flat : all.flats) flat.sharded = true;
  expect_exact_cover(all, plan_pieces(all, buckets, offsets, {0}), offsets, true);
}

TEST(EqualBits, OneDifferingBitOfOneRankIsSeen) {
  for (const int ranks : {1, 2, 3, 64, 100'000})
    for (const std::uint32_t bits : {0u, 1u, 0x3f800000u, ~0u}) {
      std::array<double, equal_bits_terms> sums{};
      const auto add = [&](std::uint32_t value, double times) {
        const auto terms = equal_bits_contribution(value);
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += times * terms[i];
      };
      add(bits, ranks - 1);
      const auto others = sums;
      add(bits, 1);
      EXPECT_TRUE(all_bits_equal(sums, ranks));
      for (int bit = 0; bit < 32 && ranks > 1; ++bit) {
        sums = others;
        add(bits ^ (1u << bit), 1);
        EXPECT_FALSE(all_bits_equal(sums, ranks)) << ranks << " ranks, bit " << bit;
      }
    }
}

}  // namespace replicas_test
}  // namespace millrace
