// An optimizer whose state is divided among ranks.
#include <cmath>
#include <cstring>
#include <memory>

#include "ops/optimizer_memory.hpp"
#include "support/expect_error.hpp"

namespace millrace {
namespace optimizer_shards_test {

using namespace test;

constexpr std::int64_t unit = OptimizerSpec::chunk_size;

// Keeps of the master what a rank stores: the first spec.whole_master elements, then those of its shards.
void drop_master_of_others(OptimizerMemory& m, const OptimizerSpec& spec) {
  std::int64_t at = spec.whole_master;
  for (const auto& shard : spec.shards) {
    if (shard.begin < spec.whole_master) continue;
    for (std::int64_t i = 0; i < shard.count; ++i) m.master[std::size_t(at++)] = m.master[std::size_t(shard.begin + i)];
  }
  for (; at < spec.count; ++at) m.master[std::size_t(at)] = NAN;
}

// The elements of a rank's shards are those of a step without shards.
void expect_own_elements(const OptimizerMemory& m, const OptimizerMemory& whole,
                         const std::vector<OptimizerShard>& shards, std::int64_t whole_master, const char* name) {
  std::size_t kept = 0, stored = std::size_t(whole_master);
  for (const auto& shard : shards) {
    const std::size_t begin = std::size_t(shard.begin), bytes = std::size_t(shard.count) * 4;
    const bool behind = shard.begin >= whole_master;
    EXPECT_EQ(std::memcmp(&m.master[behind ? stored : begin], &whole.master[begin], bytes), 0) << name;
    if (behind) stored += std::size_t(shard.count);
    EXPECT_EQ(std::memcmp(&m.weights[begin], &whole.weights[begin], bytes / 2), 0) << name;
    EXPECT_EQ(std::memcmp(&m.moment1[kept], &whole.moment1[begin], bytes), 0) << name;
    EXPECT_EQ(std::memcmp(&m.moment2[kept], &whole.moment2[begin], bytes), 0) << name;
    EXPECT_EQ(std::memcmp(&m.average[kept], &whole.average[begin], bytes), 0) << name;
    kept += std::size_t(shard.count);
  }
}

// As the all-gather of OptimizerArgs::updates.
void gather_updates(std::vector<std::unique_ptr<OptimizerMemory>>& parts,
                    const std::vector<std::vector<OptimizerShard>>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const OptimizerShard& shard : ranks[r])
      for (auto& to : parts)
        for (std::int64_t i = shard.begin; i < shard.begin + shard.count; ++i)
          to->gradient[std::size_t(i)] = parts[r]->gradient[std::size_t(i)];
}

// As a reduce-scatter, which leaves nothing of use in the shards of other ranks.
void share(const std::vector<float>& gradient, std::vector<std::unique_ptr<OptimizerMemory>>& parts,
           const std::vector<std::vector<OptimizerShard>>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::ranges::fill(parts[r]->gradient, NAN);
    for (const OptimizerShard& shard : ranks[r])
      std::copy_n(&gradient[std::size_t(shard.begin)], shard.count, &parts[r]->gradient[std::size_t(shard.begin)]);
  }
}

// A gap, a matrix in the shards of two ranks, one in a single chunk, vectors, and a matrix in all shards of two ranks.
OptimizerCase muon_case() {
  OptimizerSpec s = optimizer_spec(OptimizerSpec::Kind::muon);
  s.momentum = 0.95f;
  s.nesterov = true;
  s.clip = 0.5f;
  s.average = 0.125f;
  s.segments = {{0, 201 * 45, 0.01f, 1, 201, 45},
                {9088, 33 * 3, 0.1f, 2, 33, 3},
                {9216, 1000, 0.1f, 0.5f},
                {10240, 139 * 211, 0.1f, 0.25f, 139, 211}};
  return {"muon", s};
}

// Three ranks with uneven shards. The shard of the last rank has no parameters. Between the phases, the sums of squares
// are added, or the updates of muon are gathered. Every step has a gradient of its own, because muon writes over it.
void expect_shards_to_change_no_bit(std::int64_t whole_master, DType weight_dtype) {
  constexpr std::int64_t padded = 12 * unit;
  const std::vector<std::vector<OptimizerShard>> ranks{
      {{0, 2 * unit}, {5 * unit, unit}}, {{2 * unit, 3 * unit}, {6 * unit, 4 * unit}}, {{10 * unit, 2 * unit}}};
  std::vector<OptimizerCase> cases = optimizer_cases();
  cases.push_back(muon_case());
  for (const OptimizerCase& c : cases) {
    OptimizerSpec s = c.spec;
    s.count = padded;
    s.weight_dtype = weight_dtype;
    s.whole_master = whole_master;
    OptimizerMemory whole(s);
    std::vector<std::unique_ptr<OptimizerMemory>> parts;
    std::vector<DeviceVector<double>> sums;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      s.shards = ranks[r];
      parts.push_back(std::make_unique<OptimizerMemory>(s));
      if (whole_master < padded) drop_master_of_others(*parts.back(), s);
      sums.emplace_back(std::vector<double>(std::size_t(square_sum_count(s)), 7.0));
    }
    for (int step = 0; step < 4; ++step) {
      std::vector<float> gradient = OptimizerMemory::in_segments(s, std::uint64_t(20 + step));
      if (step == 2) gradient[25000] = INFINITY;  // only the rank that owns the element sees the overflow
      std::ranges::copy(gradient, whole.gradient.begin());
      share(gradient, parts, ranks);
      whole.step();
      for (int phase = 0; phase < parts[0]->op->phases(); ++phase) {
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          OptimizerMemory& m = *parts[r];
          sums[r].to_device();
          m.run([&] { m.op->run(phase, m.args(sums[r].data())); });
          sums[r].to_host();
        }
        if (s.gathers_updates() && phase == 1) gather_updates(parts, ranks);
        for (std::size_t i = 0; i < sums[0].size(); ++i) {
          const double sum = sums[0][i] + sums[1][i] + sums[2][i];
          for (auto& of_rank : sums) of_rank[i] = sum;
        }
      }
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const OptimizerMemory& m = *parts[r];
      EXPECT_EQ(m.state.grad_norm, whole.state.grad_norm) << c.name;
      EXPECT_EQ(m.state.applied, 3u) << c.name;
      EXPECT_EQ(m.state.attempted, 4u) << c.name;
      EXPECT_EQ(m.running.copy(), whole.running.copy()) << c.name;
      expect_own_elements(m, whole, ranks[r], whole_master, c.name);
    }
    OptimizerMemory untouched(c.spec);
    if (whole_master == padded) {
      EXPECT_EQ(parts[0]->master[25000], untouched.master[25000]) << "element of another rank";
    }
  }
}

TEST(OptimizerOp, ShardedStepEqualsTheUnshardedStepBitForBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) expect_shards_to_change_no_bit(12 * unit, dtype);
}

TEST(OptimizerOp, AShardedStepNeedsOnlyItsOwnMasterWeights) {
  for (const std::int64_t whole : {std::int64_t(0), 5 * unit}) expect_shards_to_change_no_bit(whole, DType::bf16);
}

TEST(OptimizerOp, AShardAcrossTheEndOfTheWholeMasterIsRefused) {
  OptimizerSpec s = optimizer_spec();
  s.count = 12 * unit;
  s.shards = {{0, 2 * unit}};
  s.whole_master = unit;
  expect_error(Exit::internal, "crosses the end of the whole master", [&] { split_into_chunks(s); });
}

}  // namespace optimizer_shards_test
}  // namespace millrace
