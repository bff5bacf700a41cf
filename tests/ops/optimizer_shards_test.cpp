// An optimizer whose state is divided among ranks.
#include <cmath>
#include <cstring>
#include <memory>

#include "ops/optimizer_memory.hpp"

namespace millrace {
namespace {

using namespace test;

// Three ranks with uneven shards. The shard of the last rank has no parameters. The sums of squares are added between
// the phases.
TEST(OptimizerOp, ShardedStepEqualsTheUnshardedStepBitForBit) {
  constexpr std::int64_t unit = OptimizerSpec::chunk_size, padded = 12 * unit;
  const std::vector<std::vector<OptimizerShard>> ranks{
      {{0, 2 * unit}, {5 * unit, unit}}, {{2 * unit, 3 * unit}, {6 * unit, 4 * unit}}, {{10 * unit, 2 * unit}}};
  for (const OptimizerCase& c : optimizer_cases()) {
    OptimizerSpec s = c.spec;
    s.count = padded;
    OptimizerMemory whole(s);
    std::vector<std::unique_ptr<OptimizerMemory>> parts;
    std::vector<DeviceVector<double>> sums;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      s.shards = ranks[r];
      parts.push_back(std::make_unique<OptimizerMemory>(s));
      sums.emplace_back(std::vector<double>(std::size_t(square_sum_count(s)), 7.0));
    }
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {  // only the rank that owns the element sees the overflow
        whole.gradient[25000] = INFINITY;
        parts[1]->gradient[25000] = INFINITY;
      }
      if (step == 3) {
        whole.gradient[25000] = 1;
        parts[1]->gradient[25000] = 1;
      }
      whole.step();
      for (int phase = 0; phase < parts[0]->op->phases(); ++phase) {
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          OptimizerMemory& m = *parts[r];
          m.op->run(phase, {m.master.data(), m.weights.data(), m.gradient.data(), m.moment1.data(), m.moment2.data(),
                            m.running.data(), m.stats.data(), &m.state, sums[r].data()});
        }
        device().synchronize();
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
      EXPECT_EQ(m.running.copy(), whole.running.copy()) << c.name;
      std::size_t kept = 0;
      for (const auto& shard : ranks[r]) {
        const std::size_t begin = std::size_t(shard.begin), bytes = std::size_t(shard.count) * 4;
        EXPECT_EQ(std::memcmp(&m.master[begin], &whole.master[begin], bytes), 0) << c.name;
        EXPECT_EQ(std::memcmp(&m.moment1[kept], &whole.moment1[begin], bytes), 0) << c.name;
        EXPECT_EQ(std::memcmp(&m.moment2[kept], &whole.moment2[begin], bytes), 0) << c.name;
        kept += std::size_t(shard.count);
      }
    }
    OptimizerMemory untouched(c.spec);
    EXPECT_EQ(parts[0]->master[25000], untouched.master[25000]) << "element of another rank";
  }
}

}  // namespace
}  // namespace millrace
