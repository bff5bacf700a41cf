#include "cuda/runtime/device.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "cuda/runtime/dynamic_library.hpp"
#include "millrace/base/error.hpp"
#include "millrace/compute/execution_context.hpp"

namespace millrace::cuda {
namespace {

TEST(CudaSeating, RanksKnowWhoSharesTheirGpu) {
  const std::vector<GpuAssignment> gpu_assignments{{"a", "0:1", 2}, {"a", "0:2", 2}, {"a", "0:1", 2}, {"b", "0:1", 1}};
  const int ranks_per_gpu[] = {2, 1, 2, 1};
  for (std::size_t rank = 0; rank < gpu_assignments.size(); ++rank) {
    const GpuTopology seating = gpu_topology_of(gpu_assignments, rank);
    EXPECT_EQ(seating.ranks_per_gpu, ranks_per_gpu[rank]) << rank;
    EXPECT_EQ(seating.max_ranks_per_gpu, 2);
    EXPECT_EQ(seating.host_with_hidden_gpus, "");
  }
}

TEST(CudaSeating, GpusThatASchedulerHidesFromEachOtherAreNotShared) {
  const std::vector<GpuAssignment> gpu_assignments{{"a", "0:1", 1}, {"a", "0:2", 1}, {"b", "0:1", 4}, {"b", "0:2", 4}};
  for (std::size_t rank = 0; rank < gpu_assignments.size(); ++rank) {
    const GpuTopology seating = gpu_topology_of(gpu_assignments, rank);
    EXPECT_EQ(seating.ranks_per_gpu, 1);
    EXPECT_EQ(seating.max_ranks_per_gpu, 1);
    EXPECT_EQ(seating.host_with_hidden_gpus, "a") << rank;  // on every rank: only one of them warns
  }
}

TEST(CudaSeating, RanksThatSeeTheSameSingleGpuShareIt) {
  const GpuTopology seating = gpu_topology_of({{"a", "0:1", 1}, {"a", "0:1", 1}, {"a", "0:1", 1}}, 1);
  EXPECT_EQ(seating.ranks_per_gpu, 3);
  EXPECT_EQ(seating.max_ranks_per_gpu, 3);
  EXPECT_EQ(seating.host_with_hidden_gpus, "");
}

constexpr char first_uuid[16] = {0x1b, 2, 3}, second_uuid[16] = {0x1b, 2, 4};
const std::string whole = "NVIDIA H200", cut = "NVIDIA H200 MIG 1g.18gb";

TEST(CudaSlices, AreToldFromEachOtherByIdentifierOrEnvironment) {
  EXPECT_EQ(mig_instance_of(whole, first_uuid, nullptr), "");
  EXPECT_EQ(mig_instance_of(whole, first_uuid, "0,1"), "");
  EXPECT_EQ(mig_instance_of(whole, first_uuid, "GPU-4f2a"), "");
  EXPECT_EQ(mig_instance_of(cut, first_uuid, nullptr), "1b020300000000000000000000000000");
  EXPECT_NE(mig_instance_of(cut, first_uuid, nullptr), mig_instance_of(cut, second_uuid, nullptr));
  // One identifier for all slices of a GPU.
  EXPECT_NE(mig_instance_of(cut, first_uuid, "MIG-a"), mig_instance_of(cut, first_uuid, "MIG-b"));
  EXPECT_EQ(mig_instance_of(cut, first_uuid, "MIG-a"), mig_instance_of(cut, first_uuid, "MIG-a,MIG-b"))
      << "CUDA shows the first";
}

TEST(CudaSlices, RanksOfAHostTakeThoseThatAreListedInTurn) {
  for (const char* nothing : {"", "0,1", "MIG-a", "GPU-a,GPU-b", "0,MIG-a,MIG-b"})
    EXPECT_EQ(mig_instance_for(nothing, 1), "") << nothing;
  EXPECT_EQ(mig_instance_for(nullptr, 1), "");
  const char* three = "MIG-a,MIG-GPU-4f2a/1/0,MIG-c";
  EXPECT_EQ(mig_instance_for(three, 0), "MIG-a");
  EXPECT_EQ(mig_instance_for(three, 1), "MIG-GPU-4f2a/1/0");
  EXPECT_EQ(mig_instance_for(three, 2), "MIG-c");
  EXPECT_EQ(mig_instance_for(three, 3), "MIG-a");
}

TEST(CudaSlices, OfOneGpuSumByTheHostAndShareNoMemory) {
  const GpuTopology apart = gpu_topology_of({{"a", "0:1", 1, "x"}, {"a", "0:1", 1, "y"}, {"a", "0:2", 1, "z"}}, 0);
  EXPECT_EQ(apart.ranks_per_gpu, 1);
  EXPECT_EQ(apart.max_ranks_per_gpu, 1);
  EXPECT_EQ(apart.max_ranks_per_physical_gpu, 2);
  EXPECT_EQ(apart.host_with_hidden_gpus, "") << "one is all that a process can see";
  EXPECT_EQ(why_not_nccl(apart), "nccl does not sum over MIG slices of one GPU. set it to mpi or auto");
  ASSERT_EQ(topology_warnings(apart).size(), 1u);
  EXPECT_EQ(topology_warnings(apart)[0].find("2 ranks are on MIG slices of one GPU, so sums go by way of host memory"),
            0u);

  const GpuTopology shared = gpu_topology_of({{"a", "0:1", 1, "x"}, {"a", "0:1", 1, "x"}, {"a", "0:1", 1, "y"}}, 2);
  EXPECT_EQ(shared.ranks_per_gpu, 1);
  EXPECT_EQ(shared.max_ranks_per_gpu, 2);
  EXPECT_NE(why_not_nccl(shared), "");
  ASSERT_EQ(topology_warnings(shared).size(), 1u);
  EXPECT_NE(topology_warnings(shared)[0].find("2 ranks share a MIG slice of a GPU"), std::string::npos);
  EXPECT_NE(topology_warnings(shared)[0].find("CUDA_VISIBLE_DEVICES"), std::string::npos);

  const GpuTopology alone = gpu_topology_of({{"a", "0:1", 1, "x"}, {"b", "0:1", 1, "x"}}, 1);
  EXPECT_EQ(alone.max_ranks_per_physical_gpu, 1);
  EXPECT_TRUE(topology_warnings(alone).empty());
  EXPECT_EQ(why_not_nccl(alone), "");
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
  static constinit DynamicLibrary absent("libnobodys.so.7", "/nowhere", "Nobody's library (libnobodys.so.7)");
  static constinit const LazyFunction<int(int)> symbol(absent, "nobodys_function");
  for (int turn = 0; turn < 2; ++turn) try {
      symbol(3);
      FAIL() << "it was called";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::config);
      EXPECT_EQ(std::string(e.what()).find("Nobody's library (libnobodys.so.7) is missing: libnobodys.so.7: "), 0u)
          << e.what();
      EXPECT_NE(std::string(e.what()).find("run.device = cpu"), std::string::npos) << e.what();
    }
}

TEST(CudaLibrary, AnOlderLibraryWithoutAFunctionIsNamed) {
  static constinit DynamicLibrary old(MILLRACE_FAKE_NVML, "/nowhere", "NVML");
  static constinit const LazyFunction<int()> known(old, "nvml_users"), unknown(old, "nvmlOfTomorrow");
  EXPECT_NO_THROW(known());
  try {
    unknown();
    FAIL() << "it was called";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              "NVML (" MILLRACE_FAKE_NVML ") has no nvmlOfTomorrow. install a newer one, or set run.device = cpu");
  }
}

TEST(CudaDevice, IsUsableOrSaysWhyNot) {
  std::string why_not;
  if (cuda_usable(*solo_world(), &why_not)) {
    EXPECT_EQ(why_not, "");
  } else {
    EXPECT_NE(why_not, "");
  }
}

}  // namespace
}  // namespace millrace::cuda
