#include "millrace/train/session/capture_partition.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace capture_partition_test {

TEST(CapturePartition, DividesStepsIntoGroupsOfAlmostEqualSizesThatFit) {
  for (int most = 1; most <= 20; ++most)
    for (int accumulation = 1; accumulation <= 40; ++accumulation) {
      const CapturePartition capture_partition(most, accumulation);
      EXPECT_LE(capture_partition.largest(), most);
      EXPECT_EQ(capture_partition.groups(accumulation), (accumulation + most - 1) / most);
      for (int count = 0; count <= accumulation; ++count) {
        const int groups = capture_partition.groups(count);
        EXPECT_EQ(capture_partition.begin(count, 0), 0);
        EXPECT_EQ(capture_partition.begin(count, groups), count);
        for (int g = 0; g < groups; ++g) {
          const int size = capture_partition.begin(count, g + 1) - capture_partition.begin(count, g);
          EXPECT_GE(size, count / groups);
          EXPECT_LE(size, std::min(capture_partition.largest(), (count + groups - 1) / groups));
        }
      }
    }
}

// The copy of a batch waits until the previous batch in its device slot has been consumed. That must not be the newest
// batch.
TEST(CapturePartition, ConsecutiveBatchesNeverShareASlot) {
  for (int most = 1; most <= 20; ++most)
    for (int accumulation = 1; accumulation <= 40; ++accumulation) {
      const CapturePartition capture_partition(most, accumulation);
      const auto slots = std::size_t(capture_partition.device_slots());
      EXPECT_GE(slots, std::size_t(capture_partition.largest()));
      EXPECT_LE(slots, std::size_t(std::max(2, capture_partition.largest() + 4)));
      if (most >= accumulation) {
        EXPECT_EQ(slots, std::size_t(std::max(2, accumulation))) << "as many as one graph needs";
      }
      std::size_t before = slots;
      for (std::int64_t step = 0; step < 4; ++step) {
        const std::size_t first = capture_partition.first_slot(step, accumulation);
        for (int m = 0; m < accumulation; ++m) {
          const std::size_t slot = (first + std::size_t(m)) % slots;
          EXPECT_NE(slot, before) << most << " at once, " << accumulation << " accumulated, step " << step;
          before = slot;
        }
      }
    }
}

TEST(CapturePartition, StepsOfTheSameParityUseTheSameSlots) {
  for (const int accumulation : {1, 2, 5}) {
    const CapturePartition capture_partition(16, accumulation);
    for (std::int64_t step = 0; step < 8; ++step)
      EXPECT_EQ(capture_partition.first_slot(step, accumulation), capture_partition.first_slot(step + 2, accumulation));
  }
  EXPECT_NE(CapturePartition(16, 1).first_slot(0, 1), CapturePartition(16, 1).first_slot(1, 1));
}

TEST(CapturePartition, WithVaryingSharesConsecutiveStepsUseDifferentSlots) {
  for (const int accumulation : {1, 2, 7}) {
    const CapturePartition g(3, accumulation, true);
    for (int step = 0; step < 3; ++step)
      for (int before = 1; before <= accumulation; ++before)
        for (int now = 1; now <= accumulation; ++now)
          for (int b = 0; b < before; ++b)
            for (int n = 0; n < now; ++n)
              EXPECT_NE((g.first_slot(step, before) + std::size_t(b)) % std::size_t(g.device_slots()),
                        (g.first_slot(step + 1, now) + std::size_t(n)) % std::size_t(g.device_slots()));
  }
}

}  // namespace capture_partition_test
}  // namespace millrace
