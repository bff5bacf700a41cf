// How the ranks of a job share GPUs, and what follows from it: whether NCCL can be used, what each rank may allocate,
// and what the user should be warned about. Everything here is a plain function of its arguments and needs no GPU.
//
// MIG: an NVIDIA GPU can be divided into MIG instances. A process sees at most one MIG instance, even if the scheduler
// lists several. All instances of one GPU report the same PCI bus id.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace millrace::cuda {

// The GPU of one rank.
struct GpuAssignment {
  std::string host;
  std::string bus_id;             // PCI bus id of the GPU; ranks with the same host and bus id share the GPU
  int visible = 1;                // number of GPUs that the process can see
  std::string mig_instance = {};  // identifier of the MIG instance, without spaces; empty: the whole GPU
};

// How all ranks share GPUs, as seen by one of them.
struct GpuTopology {
  int ranks_per_gpu = 1;               // ranks on this rank's GPU or MIG instance
  int max_ranks_per_gpu = 1;           // the largest such number over all GPUs and MIG instances
  int max_ranks_per_physical_gpu = 1;  // the same with all MIG instances of a GPU counted together; NCCL needs 1
  bool uses_mig = false;               // at least one rank is on a MIG instance
  // A host on which each rank sees only one GPU, and the GPUs of the ranks differ. Empty: there is no such host. The
  // scheduler bound each rank to a GPU, and NCCL cannot use the links between GPUs that a process does not see.
  std::string host_with_hidden_gpus;
};
// assignments: one for each rank, in the order of the ranks.
GpuTopology gpu_topology_of(const std::vector<GpuAssignment>& assignments, std::size_t rank);
// Returns one line for each problem that the user should know about.
std::vector<std::string> topology_warnings(const GpuTopology&);
// The reason why NCCL cannot be used, or empty.
std::string why_not_nccl(const GpuTopology&);

// Identifies the MIG instance that a process computes on, from the device's name, its UUID and CUDA_VISIBLE_DEVICES
// (null: not set). Empty: the process has a whole GPU.
std::string mig_instance_of(const std::string& name, std::span<const char> uuid, const char* visible);
// Chooses the MIG instance for a rank. CUDA shows every process the first instance that CUDA_VISIBLE_DEVICES lists;
// this function distributes the listed instances over the ranks of a host round-robin. Empty: the list has fewer than
// two.
std::string mig_instance_for(const char* visible, int local_rank);

}  // namespace millrace::cuda
