// The order of block shuffle: complete blocks in windows, every sample once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "millrace/base/rng.hpp"
#include "millrace/data/load/block_order.hpp"
#include "millrace/data/load/sampler.hpp"

namespace millrace {
namespace sampler_blocks_test {

std::vector<std::int64_t> block_ids(const BlockOrder& order, std::int64_t epoch, std::int64_t first,
                                    std::int64_t count) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  order.ids(epoch, first, count, ids.data());
  return ids;
}

std::pair<std::size_t, std::int64_t> block_of(const BlockLayout& l, std::int64_t id) {
  std::size_t file = 0;
  for (; id >= l.file_rows[file]; ++file) id -= l.file_rows[file];
  return {file, id / l.block};
}

// Expects every sample once, and an order that consists of windows of complete blocks, which do not overlap.
void check_blocks(const BlockLayout& l, std::uint64_t seed, std::int64_t epoch) {
  const BlockOrder order(l, seed);
  const auto ids = block_ids(order, epoch, 0, order.rows());
  std::vector<std::int64_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < order.rows(); ++i) ASSERT_EQ(sorted[std::size_t(i)], i);
  std::map<std::pair<std::size_t, std::int64_t>, std::int64_t> left;  // rows of each block
  for (const auto id : sorted) ++left[block_of(l, id)];
  std::set<std::pair<std::size_t, std::int64_t>> window;
  std::int64_t open = 0;  // rows of the window's blocks that are still to come
  for (const auto id : ids) {
    const auto block = block_of(l, id);
    if (window.insert(block).second) open += left.at(block);
    ASSERT_GE(--left.at(block), 0);
    if (--open == 0 && std::int64_t(window.size()) == l.window) window.clear();
    ASSERT_LE(std::int64_t(window.size()), l.window);
  }
  EXPECT_EQ(open, 0);
}

TEST(SamplerBlocks, EverySampleAppearsOnceInWindowsOfCompleteBlocks) {
  for (const BlockLayout& l : {BlockLayout{{1}, 1, 1},
                               {{1}, 64, 8},
                               {{10}, 64, 8},
                               {{100}, 7, 1},
                               {{100}, 7, 1000},
                               {{64}, 64, 1},
                               {{65}, 64, 1},
                               {{65, 1, 64, 63}, 64, 2},
                               {{1, 1, 1}, 4, 2},
                               {{500}, 1, 1},
                               {{500}, 1, 37}}) {
    SCOPED_TRACE(l.file_rows[0] * 1000000 + l.block * 1000 + l.window);
    check_blocks(l, 1, 0);
  }
  for (std::uint64_t round = 0; round < 150; ++round) {
    auto random = [&, i = std::uint64_t(0)](std::uint32_t n) mutable {
      return 1 + std::int64_t(uniform_below(philox(7, round, i++).v[0], n));
    };
    BlockLayout l;
    for (std::int64_t files = random(5); files > 0; --files) l.file_rows.push_back(random(700));
    l.block = random(round % 2 ? 80 : 9);
    l.window = random(20);
    SCOPED_TRACE(round);
    check_blocks(l, round, std::int64_t(round % 3));
  }
}

TEST(SamplerBlocks, IsExactAtTwoToTheForty) {
  const std::int64_t n = std::int64_t(1) << 40;
  for (const auto& files : {std::vector<std::int64_t>{n}, {n / 2 + 1, n / 2 - 1}, {1, n - 1}}) {
    const BlockLayout l{files, 1000, 7};
    const BlockOrder order(l, 3);
    ASSERT_EQ(order.rows(), n);
    std::set<std::int64_t> seen;
    for (const std::int64_t first : {std::int64_t(0), n / 2 / 7000 * 7000 + 5000, n - 21000})
      for (const auto id : block_ids(order, 5, first, 21000)) {
        ASSERT_TRUE(id >= 0 && id < n) << id;
        ASSERT_TRUE(seen.insert(id).second);
      }
    std::set<std::pair<std::size_t, std::int64_t>> blocks;
    for (const auto id : block_ids(order, 5, 0, 7000)) blocks.insert(block_of(l, id));
    EXPECT_LE(blocks.size(), 8u);  // 8 if a short block is among them
    EXPECT_GE(blocks.size(), 7u);
  }
}

TEST(SamplerBlocks, AnyPieceOfAnEpochMatchesTheEpochAndSeedAndEpochChangeIt) {
  const BlockLayout l{{1000, 77}, 13, 5};
  const BlockOrder order(l, 3);
  const auto all = block_ids(order, 4, 0, 1077);
  for (const std::int64_t piece : {1, 2, 64, 65, 66, 500})
    for (std::int64_t first = 0; first < 1077; first += piece) {
      const std::int64_t count = std::min<std::int64_t>(piece, 1077 - first);
      const auto part = block_ids(order, 4, first, count);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first)) << piece << " at " << first;
      if (piece == 500) block_ids(order, first % 7, 0, 1);  // other epochs in between
    }
  EXPECT_NE(block_ids(order, 5, 0, 1077), all);
  EXPECT_NE(block_ids(BlockOrder(l, 4), 4, 0, 1077), all);
}

// Within a window, the next sample is of the same block with a probability of 1 / 32, as for a random order.
TEST(SamplerBlocks, SamplesOfAWindowAreMixed) {
  const BlockLayout l{{64 * 1024}, 64, 32};
  const BlockOrder order(l, 3);
  const auto ids = block_ids(order, 0, 0, order.rows());
  std::int64_t same = 0, ascending = 0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    same += ids[i] / 64 == ids[i + 1] / 64;
    ascending += ids[i] < ids[i + 1];
  }
  const double n = double(order.rows() - 1);
  EXPECT_NEAR(double(same) / n, 63.0 / (64 * 32 - 1), 6 * std::sqrt(1.0 / 32 / n));
  EXPECT_NEAR(double(ascending) / n, 0.5, 6 * 0.5 / std::sqrt(n));
}

TEST(SamplerBlocks, IdsAreTheSameForAnyRankCountAndMicroBatch) {
  const auto blocks = std::make_shared<const BlockOrder>(BlockLayout{{700, 303}, 16, 6}, 9);
  const auto ids_of = [&](std::int64_t micro, int size) {
    const Sampler sampler(97, micro, blocks);
    std::vector<std::int64_t> ids;
    for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step)
      for (int rank = 0; rank < size; ++rank)
        for (const MicroBatch& m : sampler.share(1, step, rank, size)) {
          ids.resize(ids.size() + std::size_t(m.rows));
          sampler.ids(m, ids.data() + ids.size() - std::size_t(m.rows));
        }
    return ids;
  };
  const auto alone = block_ids(*blocks, 1, 0, 1003);
  for (const std::int64_t micro : {1, 13, 97})
    for (const int size : {1, 2, 3, 8}) EXPECT_EQ(ids_of(micro, size), alone) << micro << " of " << size;
}

}  // namespace sampler_blocks_test
}  // namespace millrace
