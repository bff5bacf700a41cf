#include "millrace/data/load/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "millrace/base/permutation.hpp"

namespace millrace {
namespace sampler_test {

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

}  // namespace sampler_test
}  // namespace millrace
