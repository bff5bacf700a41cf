#include "../../src/cuda/device.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "millrace/compute/compute.hpp"

namespace millrace::cuda {
namespace {

TEST(CudaSeating, RanksKnowWhoSharesTheirGpu) {
  const std::vector<Seat> seats{{"a", "0:1", 2}, {"a", "0:2", 2}, {"a", "0:1", 2}, {"b", "0:1", 1}};
  const int sharers[] = {2, 1, 2, 1};
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    const Seating seating = seating_of(seats, rank);
    EXPECT_EQ(seating.sharers, sharers[rank]) << rank;
    EXPECT_TRUE(seating.shared);
    EXPECT_FALSE(seating.hidden);
  }
}

TEST(CudaSeating, GpusThatASchedulerHidesFromEachOtherAreNotShared) {
  const std::vector<Seat> seats{{"a", "0:1", 1}, {"a", "0:2", 1}, {"b", "0:1", 4}, {"b", "0:2", 4}};
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    const Seating seating = seating_of(seats, rank);
    EXPECT_EQ(seating.sharers, 1);
    EXPECT_FALSE(seating.shared);
    EXPECT_EQ(seating.hidden, rank < 2) << rank;
  }
}

TEST(CudaSeating, RanksThatSeeTheSameSingleGpuShareIt) {
  const Seating seating = seating_of({{"a", "0:1", 1}, {"a", "0:1", 1}, {"a", "0:1", 1}}, 1);
  EXPECT_EQ(seating.sharers, 3);
  EXPECT_TRUE(seating.shared);
  EXPECT_FALSE(seating.hidden);
}

TEST(CudaDevice, IsUsableOrSaysWhyNot) {
  std::string why_not;
  if (cuda_usable(&why_not)) {
    EXPECT_EQ(why_not, "");
  } else {
    EXPECT_NE(why_not, "");
  }
}

}  // namespace
}  // namespace millrace::cuda
