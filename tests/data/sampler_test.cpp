#include "millrace/data/load/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "millrace/base/permutation.hpp"
#include "millrace/data/load/block_order.hpp"

namespace millrace {
namespace {

std::vector<std::uint64_t> order(std::uint64_t seed, std::uint64_t epoch, std::uint64_t n) {
  const Permutation p(seed, epoch, n);
  std::vector<std::uint64_t> out(n);
  for (std::uint64_t i = 0; i < n; ++i) out[i] = p(i);
  return out;
}

TEST(Permutation, IsABijection) {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 7, 64, 65, 1000, 4095, 65537})
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      auto all = order(11, epoch, n);
      std::sort(all.begin(), all.end());
      for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(all[i], i) << n << " epoch " << epoch;
    }
}

TEST(Permutation, IsABijectionUpToTwoToTheForty) {
  for (const std::uint64_t n : {std::uint64_t(1) << 40, (std::uint64_t(1) << 40) - 1, (std::uint64_t(1) << 39) + 1}) {
    const Permutation p(3, 0, n);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 20000; ++i) {
      const std::uint64_t position = i % 2 ? n - 1 - i : i * (n / 20000);
      const std::uint64_t id = p(position);
      ASSERT_LT(id, n);
      ASSERT_TRUE(seen.insert(id).second) << position;
    }
    double mean = 0;
    for (const auto id : seen) mean += double(id) / double(n) / double(seen.size());
    EXPECT_NEAR(mean, 0.5, 5 * 0.2887 / std::sqrt(20000.0));
  }
}

TEST(Permutation, DependsOnSeedEpochAndPurpose) {
  const auto first = order(1, 0, 1000);
  EXPECT_EQ(first, order(1, 0, 1000));
  EXPECT_NE(first, order(2, 0, 1000));
  EXPECT_NE(first, order(1, 1, 1000));
  const Permutation pack(1, 0, 1000, RngPurpose::pack);
  int same = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) same += pack(i) == first[i];
  EXPECT_LT(same, 10);
}

// The position of a sample says nothing about the position of its neighbour, or about its own in the next epoch:
// chi-square test of a 16 x 16 grid, 225 degrees of freedom (standard deviation 21).
TEST(Permutation, NeighboursAndEpochsAreIndependent) {
  for (const std::uint64_t n : {1000, 50000}) {
    for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
      const auto now = order(5, epoch, n), later = order(5, epoch + 1, n);
      std::vector<double> neighbours(256), epochs(256);
      for (std::uint64_t i = 0; i + 1 < n; ++i) {
        ++neighbours[now[i] * 16 / n * 16 + now[i + 1] * 16 / n];
        ++epochs[now[i] * 16 / n * 16 + later[i] * 16 / n];
      }
      const double expected = double(n - 1) / 256;
      for (const auto& grid : {neighbours, epochs}) {
        double chi = 0;
        for (const double count : grid) chi += (count - expected) * (count - expected) / expected;
        EXPECT_LT(chi, 225 + 6 * 21) << n << " epoch " << epoch;
      }
    }
  }
}

struct Case {
  std::int64_t rows, global, micro;
};

TEST(Sampler, TheMicroBatchesOfAllRanksAreExactlyTheStep) {
  for (const Case c : {Case{1, 1, 1},
                       {10, 4, 3},
                       {10, 100, 3},
                       {1000, 64, 16},
                       {1000, 128, 64},
                       {1003, 97, 13},
                       {65, 64, 64},
                       {50000, 512, 64},
                       {7, 7, 100},
                       {129, 128, 1}})
    for (const int size : {1, 2, 3, 4, 7, 16, 129}) {
      const Sampler sampler(c.rows, c.global, c.micro, 3, true);
      std::int64_t next = 0;
      for (std::int64_t step = 0; step < std::min<std::int64_t>(sampler.steps_per_epoch(), 40); ++step) {
        const std::int64_t first = next;
        for (int rank = 0; rank < size; ++rank)
          for (const MicroBatch& m : sampler.share(2, step, rank, size)) {
            ASSERT_EQ(m.first, next) << c.rows << " " << c.global << " " << c.micro << " of " << size;
            ASSERT_GE(m.rows, 1);
            ASSERT_LE(m.rows, c.micro);
            ASSERT_EQ(m.epoch, 2);
            ASSERT_EQ(m.step, step);
            next += m.rows;
          }
        ASSERT_EQ(next - first, sampler.rows_of_step(step));
        ASSERT_EQ(next, std::min(c.rows, (step + 1) * c.global));
      }
    }
}

TEST(Sampler, IdsAreTheSameForAnyRankCount) {
  const Sampler sampler(1003, 97, 13, 9, true);
  const auto ids_of_step = [&](std::int64_t step, int size) {
    std::vector<std::int64_t> ids;
    for (int rank = 0; rank < size; ++rank)
      for (const MicroBatch& m : sampler.share(1, step, rank, size)) {
        ids.resize(ids.size() + std::size_t(m.rows));
        sampler.ids(m, ids.data() + ids.size() - std::size_t(m.rows));
      }
    return ids;
  };
  std::set<std::int64_t> epoch;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const auto alone = ids_of_step(step, 1);
    for (const int size : {2, 3, 4, 8, 100}) ASSERT_EQ(ids_of_step(step, size), alone) << step << " of " << size;
    epoch.insert(alone.begin(), alone.end());
  }
  EXPECT_EQ(epoch.size(), 1003u);
  EXPECT_EQ(*epoch.rbegin(), 1002);
}

TEST(Sampler, MicroBatchCountsOfRanksDifferByAtMostOne) {
  for (const std::int64_t rows : {96, 131, 144, 160, 200})
    for (int size = 1; size <= 5; ++size) {
      const Sampler sampler(rows, 48, 8, 1, true);
      for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
        std::set<std::int64_t> shares;
        std::int64_t all = 0;
        for (int rank = 0; rank < size; ++rank) {
          const auto share = std::int64_t(sampler.share(0, step, rank, size).size());
          shares.insert(share);
          all += share;
        }
        EXPECT_EQ(sampler.micro_batches(step), all) << rows << " rows, step " << step << ", " << size;
        EXPECT_EQ(*shares.begin(), all / size) << rows << " rows, step " << step << ", " << size;
        EXPECT_EQ(*shares.rbegin(), (all + size - 1) / size) << rows << " rows, step " << step << ", " << size;
      }
    }
}

TEST(Sampler, UnshuffledIdsArePositions) {
  const Sampler sampler(10, 4, 3, 9, false);
  std::vector<std::int64_t> ids(3);
  sampler.ids({5, 1, 4, 3}, ids.data());
  EXPECT_EQ(ids, (std::vector<std::int64_t>{4, 5, 6}));
}

TEST(Sampler, RowCountsAreExactlyThoseOfAllMicroBatches) {
  for (const Case c : {Case{1, 1, 1},
                       {10, 4, 3},
                       {10, 100, 3},
                       {1000, 64, 16},
                       {1000, 128, 48},
                       {1003, 97, 13},
                       {65, 64, 64},
                       {7, 7, 100},
                       {130, 128, 3}}) {
    const Sampler sampler(c.rows, c.global, c.micro, 3, true);
    std::set<std::int64_t, std::greater<>> seen;
    for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step)
      for (const MicroBatch& m : sampler.share(0, step, 0, 1)) seen.insert(m.rows);
    EXPECT_EQ(sampler.row_counts(), std::vector<std::int64_t>(seen.begin(), seen.end())) << c.rows << " " << c.global;
  }
}

TEST(Permutation, PositionOfIsItsInverse) {
  for (const std::uint64_t n :
       {std::uint64_t(1), std::uint64_t(2), std::uint64_t(5), std::uint64_t(1000), (std::uint64_t(1) << 40) - 7}) {
    const Permutation p(4, 2, n, RngPurpose::blocks, 3);
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(n, 2000); ++i) {
      const std::uint64_t position = n - 1 - i * (n / 2000 + 1) % n;
      ASSERT_EQ(p.position_of(p(position)), position) << n;
    }
  }
}

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

}  // namespace
}  // namespace millrace
