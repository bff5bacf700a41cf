#include "cuda/runtime/gpu_topology.hpp"

#include <gtest/gtest.h>

namespace millrace::cuda {
namespace gpu_topology_test {

TEST(GpuTopology, RanksKnowWhoSharesTheirGpu) {
  const std::vector<GpuAssignment> assignments{{"a", "0:1", 2}, {"a", "0:2", 2}, {"a", "0:1", 2}, {"b", "0:1", 1}};
  const int ranks_per_gpu[] = {2, 1, 2, 1};
  for (std::size_t rank = 0; rank < assignments.size(); ++rank) {
    const GpuTopology topology = gpu_topology_of(assignments, rank);
    EXPECT_EQ(topology.ranks_per_gpu, ranks_per_gpu[rank]) << rank;
    EXPECT_EQ(topology.max_ranks_per_gpu, 2);
    EXPECT_EQ(topology.host_with_hidden_gpus, "");
  }
}

TEST(GpuTopology, GpusThatTheSchedulerHidesFromEachOtherAreNotShared) {
  const std::vector<GpuAssignment> assignments{{"a", "0:1", 1}, {"a", "0:2", 1}, {"b", "0:1", 4}, {"b", "0:2", 4}};
  for (std::size_t rank = 0; rank < assignments.size(); ++rank) {
    const GpuTopology topology = gpu_topology_of(assignments, rank);
    EXPECT_EQ(topology.ranks_per_gpu, 1);
    EXPECT_EQ(topology.max_ranks_per_gpu, 1);
    EXPECT_EQ(topology.host_with_hidden_gpus, "a") << rank;  // the same on every rank, so that only one of them warns
  }
}

TEST(GpuTopology, RanksThatSeeTheSameSingleGpuShareIt) {
  const GpuTopology topology = gpu_topology_of({{"a", "0:1", 1}, {"a", "0:1", 1}, {"a", "0:1", 1}}, 1);
  EXPECT_EQ(topology.ranks_per_gpu, 3);
  EXPECT_EQ(topology.max_ranks_per_gpu, 3);
  EXPECT_EQ(topology.host_with_hidden_gpus, "");
}

constexpr char first_uuid[16] = {0x1b, 2, 3}, second_uuid[16] = {0x1b, 2, 4};
const std::string whole_gpu = "NVIDIA H200", instance = "NVIDIA H200 MIG 1g.18gb";

TEST(MigInstances, AreIdentifiedByUuidOrEnvironment) {
  EXPECT_EQ(mig_instance_of(whole_gpu, first_uuid, nullptr), "");
  EXPECT_EQ(mig_instance_of(whole_gpu, first_uuid, "0,1"), "");
  EXPECT_EQ(mig_instance_of(whole_gpu, first_uuid, "GPU-4f2a"), "");
  EXPECT_EQ(mig_instance_of(instance, first_uuid, nullptr), "1b020300000000000000000000000000");
  EXPECT_NE(mig_instance_of(instance, first_uuid, nullptr), mig_instance_of(instance, second_uuid, nullptr));
  // Older drivers report one UUID for all instances of a GPU.
  EXPECT_NE(mig_instance_of(instance, first_uuid, "MIG-a"), mig_instance_of(instance, first_uuid, "MIG-b"));
  EXPECT_EQ(mig_instance_of(instance, first_uuid, "MIG-a"), mig_instance_of(instance, first_uuid, "MIG-a,MIG-b"))
      << "CUDA shows the first one";
}

TEST(MigInstances, AreDistributedOverTheRanksOfAHostRoundRobin) {
  for (const char* nothing_to_choose : {"", "0,1", "MIG-a", "GPU-a,GPU-b", "0,MIG-a,MIG-b"})
    EXPECT_EQ(mig_instance_for(nothing_to_choose, 1), "") << nothing_to_choose;
  EXPECT_EQ(mig_instance_for(nullptr, 1), "");
  const char* three = "MIG-a,MIG-GPU-4f2a/1/0,MIG-c";
  EXPECT_EQ(mig_instance_for(three, 0), "MIG-a");
  EXPECT_EQ(mig_instance_for(three, 1), "MIG-GPU-4f2a/1/0");
  EXPECT_EQ(mig_instance_for(three, 2), "MIG-c");
  EXPECT_EQ(mig_instance_for(three, 3), "MIG-a");
}

TEST(MigInstances, OfOneGpuReduceThroughTheHostAndShareNoMemory) {
  const GpuTopology apart = gpu_topology_of({{"a", "0:1", 1, "x"}, {"a", "0:1", 1, "y"}, {"a", "0:2", 1, "z"}}, 0);
  EXPECT_EQ(apart.ranks_per_gpu, 1);
  EXPECT_EQ(apart.max_ranks_per_gpu, 1);
  EXPECT_EQ(apart.max_ranks_per_physical_gpu, 2);
  EXPECT_EQ(apart.host_with_hidden_gpus, "") << "a process sees one instance in any case";
  EXPECT_EQ(why_not_nccl(apart), "nccl does not support several MIG instances of one GPU. set it to mpi or auto");
  ASSERT_EQ(topology_warnings(apart).size(), 1u);
  EXPECT_EQ(topology_warnings(apart)[0].find(
                "2 ranks are on MIG instances of one GPU, so all-reduces go through host memory"),
            0u);

  const GpuTopology shared = gpu_topology_of({{"a", "0:1", 1, "x"}, {"a", "0:1", 1, "x"}, {"a", "0:1", 1, "y"}}, 2);
  EXPECT_EQ(shared.ranks_per_gpu, 1);
  EXPECT_EQ(shared.max_ranks_per_gpu, 2);
  EXPECT_NE(why_not_nccl(shared), "");
  ASSERT_EQ(topology_warnings(shared).size(), 1u);
  EXPECT_NE(topology_warnings(shared)[0].find("2 ranks share one MIG instance of a GPU"), std::string::npos);
  EXPECT_NE(topology_warnings(shared)[0].find("CUDA_VISIBLE_DEVICES"), std::string::npos);

  const GpuTopology alone = gpu_topology_of({{"a", "0:1", 1, "x"}, {"b", "0:1", 1, "x"}}, 1);
  EXPECT_EQ(alone.max_ranks_per_physical_gpu, 1);
  EXPECT_TRUE(topology_warnings(alone).empty());
  EXPECT_EQ(why_not_nccl(alone), "");
}

}  // namespace gpu_topology_test
}  // namespace millrace::cuda
