#include "../../src/cuda/device.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "../../src/cuda/library.hpp"
#include "millrace/base/error.hpp"
#include "millrace/compute/compute.hpp"

namespace millrace::cuda {
namespace {

TEST(CudaSeating, RanksKnowWhoSharesTheirGpu) {
  const std::vector<Seat> seats{{"a", "0:1", 2}, {"a", "0:2", 2}, {"a", "0:1", 2}, {"b", "0:1", 1}};
  const int sharers[] = {2, 1, 2, 1};
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    const Seating seating = seating_of(seats, rank);
    EXPECT_EQ(seating.sharers, sharers[rank]) << rank;
    EXPECT_EQ(seating.most_sharers, 2);
    EXPECT_EQ(seating.hidden, "");
  }
}

TEST(CudaSeating, GpusThatASchedulerHidesFromEachOtherAreNotShared) {
  const std::vector<Seat> seats{{"a", "0:1", 1}, {"a", "0:2", 1}, {"b", "0:1", 4}, {"b", "0:2", 4}};
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    const Seating seating = seating_of(seats, rank);
    EXPECT_EQ(seating.sharers, 1);
    EXPECT_EQ(seating.most_sharers, 1);
    EXPECT_EQ(seating.hidden, "a") << rank;  // on every rank: only one of them warns
  }
}

TEST(CudaSeating, RanksThatSeeTheSameSingleGpuShareIt) {
  const Seating seating = seating_of({{"a", "0:1", 1}, {"a", "0:1", 1}, {"a", "0:1", 1}}, 1);
  EXPECT_EQ(seating.sharers, 3);
  EXPECT_EQ(seating.most_sharers, 3);
  EXPECT_EQ(seating.hidden, "");
}

TEST(CudaDevice, WithoutAGpuTheReasonAndTheMendAreNamed) {
  EXPECT_EQ(explain_no_gpu(cudaErrorInsufficientDriver, 12040, 13000, nullptr),
            "the NVIDIA driver serves CUDA 12.4, this millrace needs 13.0. update the driver");
  EXPECT_EQ(explain_no_gpu(cudaErrorInsufficientDriver, 0, 13000, "0"),
            "no NVIDIA driver on this machine. set run.device = cpu (or auto), or start on a node with GPUs");
  EXPECT_EQ(explain_no_gpu(cudaErrorNoDevice, 13000, 13000, ""),
            "CUDA_VISIBLE_DEVICES = '' leaves no GPU (no CUDA-capable device is detected). name one that is there");
  EXPECT_EQ(explain_no_gpu(cudaErrorNoDevice, 13000, 13000, nullptr),
            "no GPU (no CUDA-capable device is detected). ask the scheduler for one, or set run.device = cpu");
}

TEST(CudaDevice, AnOldGpuIsRefusedByName) {
  EXPECT_EQ(explain_old_gpu("NVIDIA H200", 9, 0), "");
  EXPECT_EQ(explain_old_gpu("NVIDIA A100", 8, 0), "");
  EXPECT_EQ(explain_old_gpu("Tesla V100", 7, 0),
            "Tesla V100 has compute capability 7.0, this millrace needs 8.0. set run.device = cpu, or use a newer GPU");
}

TEST(CudaLibrary, WhatIsMissingIsNamedAtItsFirstUse) {
  static constinit Library absent("libnobodys.so.7", "/nowhere", "Nobody's library (libnobodys.so.7)");
  static constinit const Late<int(int)> function(absent, "nobodys_function");
  for (int turn = 0; turn < 2; ++turn) try {
      function(3);
      FAIL() << "it was called";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::config);
      EXPECT_EQ(std::string(e.what()).find("Nobody's library (libnobodys.so.7) is missing: libnobodys.so.7: "), 0u)
          << e.what();
      EXPECT_NE(std::string(e.what()).find("run.device = cpu"), std::string::npos) << e.what();
    }
}

TEST(CudaLibrary, AnOlderLibraryWithoutAFunctionIsNamed) {
  static constinit Library old(MILLRACE_PRETENDED_NVML, "/nowhere", "NVML");
  static constinit const Late<int()> known(old, "nvml_users"), unknown(old, "nvmlOfTomorrow");
  EXPECT_NO_THROW(known());
  try {
    unknown();
    FAIL() << "it was called";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              "NVML (" MILLRACE_PRETENDED_NVML ") has no nvmlOfTomorrow. install a newer one, or set run.device = cpu");
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
