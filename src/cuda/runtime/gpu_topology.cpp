#include "cuda/runtime/gpu_topology.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

constexpr std::string_view mig_uuid_prefix = "MIG-";  // of an entry in CUDA_VISIBLE_DEVICES

std::vector<std::string> mig_instances_in(const char* visible) {
  std::vector<std::string> instances;
  std::string_view rest = visible ? visible : "";
  while (rest.starts_with(mig_uuid_prefix)) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    instances.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return instances;
}

}  // namespace

std::string mig_instance_of(const std::string& name, std::span<const char> uuid, const char* visible) {
  const auto instances = mig_instances_in(visible);
  if (instances.empty() && name.find(" MIG ") == name.npos) return "";
  std::string text;
  for (const char c : uuid)
    for (const int digit : {(c >> 4) & 15, c & 15}) text += "0123456789abcdef"[digit];
  // Older drivers report the UUID of the whole GPU for every instance, so the listed name is part of the result.
  return instances.empty() ? text : text + "/" + instances.front();
}

std::string mig_instance_for(const char* visible, int local_rank) {
  const auto instances = mig_instances_in(visible);
  return instances.size() < 2 ? "" : instances[std::size_t(local_rank) % instances.size()];
}

GpuTopology gpu_topology_of(const std::vector<GpuAssignment>& assignments, std::size_t rank) {
  GpuTopology topology;
  for (const GpuAssignment& one : assignments) {
    int on_instance = 0, on_gpu = 0;  // ranks on the same GPU or MIG instance, ranks on the same GPU
    for (const GpuAssignment& other : assignments) {
      if (other.host != one.host) continue;
      const bool same_gpu = other.bus_id == one.bus_id;
      on_gpu += same_gpu;
      on_instance += same_gpu && other.mig_instance == one.mig_instance;
      const bool both_see_one =
          other.visible == 1 && one.visible == 1 && other.mig_instance.empty() && one.mig_instance.empty();
      if (!same_gpu && both_see_one && topology.host_with_hidden_gpus.empty())
        topology.host_with_hidden_gpus = one.host;
    }
    if (&one == &assignments.at(rank)) topology.ranks_per_gpu = on_instance;
    topology.max_ranks_per_gpu = std::max(topology.max_ranks_per_gpu, on_instance);
    topology.max_ranks_per_physical_gpu = std::max(topology.max_ranks_per_physical_gpu, on_gpu);
    topology.uses_mig = topology.uses_mig || !one.mig_instance.empty();
  }
  return topology;
}

std::vector<std::string> topology_warnings(const GpuTopology& t) {
  std::vector<std::string> out;
  if (!t.host_with_hidden_gpus.empty())
    out.push_back(
        fmt::format("each rank on {} sees a single GPU of that host, so NCCL cannot use the links between the GPUs. "
                    "use --gpus-per-node (not --gpus-per-task), or unset CUDA_VISIBLE_DEVICES",
                    t.host_with_hidden_gpus));
  if (t.max_ranks_per_gpu > 1 && t.uses_mig)
    out.push_back(fmt::format(
        "{} ranks share one MIG instance of a GPU, because a process sees one instance only. this is fine for tests, "
        "but slow for training. list one instance for each rank of a host in CUDA_VISIBLE_DEVICES (nvidia-smi -L)",
        t.max_ranks_per_gpu));
  else if (t.max_ranks_per_gpu > 1)
    out.push_back(
        fmt::format("{} ranks share a GPU. this is fine for tests, but slow for training. start one rank per GPU",
                    t.max_ranks_per_gpu));
  else if (t.max_ranks_per_physical_gpu > 1)
    out.push_back(
        fmt::format("{} ranks are on MIG instances of one GPU, so all-reduces go through host memory and steps are not "
                    "captured as graphs. one rank on the whole GPU is faster",
                    t.max_ranks_per_physical_gpu));
  return out;
}

std::string why_not_nccl(const GpuTopology& t) {
  if (t.max_ranks_per_gpu > 1)
    return "nccl needs a GPU for every rank, but here ranks share one. set it to mpi or auto";
  if (t.max_ranks_per_physical_gpu > 1)
    return "nccl does not support several MIG instances of one GPU. set it to mpi or auto";
  return "";
}

}  // namespace millrace::cuda
