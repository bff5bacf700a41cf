#include "../../src/cuda/device.hpp"

#include <gtest/gtest.h>

#include <map>

#include "millrace/compute/compute.hpp"

namespace millrace::cuda {
namespace {

TEST(CudaDevice, RanksOfAHostSpreadOverItsGpusAndKnowWhoShares) {
  for (int count = 1; count <= 8; ++count)
    for (int ranks = 1; ranks <= 17; ++ranks) {
      std::map<int, int> on;
      for (int rank = 0; rank < ranks; ++rank) ++on[choose_device(rank, ranks, count).ordinal];
      for (int rank = 0; rank < ranks; ++rank) {
        const Choice choice = choose_device(rank, ranks, count);
        EXPECT_LT(choice.ordinal, count);
        EXPECT_EQ(choice.sharers, on[choice.ordinal]) << rank << " of " << ranks << " on " << count;
        EXPECT_EQ(choice.warning.empty(), ranks <= count);
      }
      EXPECT_EQ(int(on.size()), std::min(count, ranks));
    }
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
