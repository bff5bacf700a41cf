// How the ranks' GPUs lie, and what that means for them: see device.hpp.
#include <algorithm>
#include <string_view>

#include "cuda/runtime/device.hpp"

namespace millrace::cuda {
namespace {

constexpr std::string_view mig_uuid_prefix = "MIG-";  // in CUDA_VISIBLE_DEVICES

std::vector<std::string> mig_instances_in(const char* visible) {
  std::vector<std::string> slices;
  std::string_view rest = visible ? visible : "";
  while (rest.starts_with(mig_uuid_prefix)) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    slices.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return slices;
}

}  // namespace

std::string mig_instance_of(const std::string& name, std::span<const char> uuid, const char* visible) {
  const auto slices = mig_instances_in(visible);
  if (slices.empty() && name.find(" MIG ") == name.npos) return "";
  std::string text;
  for (const char c : uuid)
    for (const int digit : {(c >> 4) & 15, c & 15}) text += "0123456789abcdef"[digit];
  return slices.empty() ? text : text + "/" + slices.front();  // older drivers give the whole GPU's identifier
}

std::string mig_instance_for(const char* visible, int local_rank) {
  const auto slices = mig_instances_in(visible);
  return slices.size() < 2 ? "" : slices[std::size_t(local_rank) % slices.size()];
}

GpuTopology gpu_topology_of(const std::vector<GpuAssignment>& gpu_assignments, std::size_t rank) {
  GpuTopology seating;
  for (const GpuAssignment& seat : gpu_assignments) {
    int ranks_per_gpu = 0, on_gpu = 0;
    for (const GpuAssignment& other : gpu_assignments) {
      if (other.host != seat.host) continue;
      const bool same_gpu = other.bus_id == seat.bus_id;
      on_gpu += same_gpu;
      ranks_per_gpu += same_gpu && other.mig_instance == seat.mig_instance;
      const bool both_see_one =
          other.visible == 1 && seat.visible == 1 && other.mig_instance.empty() && seat.mig_instance.empty();
      if (!same_gpu && both_see_one && seating.host_with_hidden_gpus.empty()) seating.host_with_hidden_gpus = seat.host;
    }
    if (&seat == &gpu_assignments.at(rank)) seating.ranks_per_gpu = ranks_per_gpu;
    seating.max_ranks_per_gpu = std::max(seating.max_ranks_per_gpu, ranks_per_gpu);
    seating.max_ranks_per_physical_gpu = std::max(seating.max_ranks_per_physical_gpu, on_gpu);
    seating.uses_mig = seating.uses_mig || !seat.mig_instance.empty();
  }
  return seating;
}

std::vector<std::string> topology_warnings(const GpuTopology& s) {
  std::vector<std::string> out;
  if (!s.host_with_hidden_gpus.empty())
    out.push_back(cat("each rank on ", s.host_with_hidden_gpus,
                      " sees a single GPU of that host, so NCCL cannot use the links between them. use --gpus-per-node "
                      "(not --gpus-per-task), or unset CUDA_VISIBLE_DEVICES"));
  if (s.max_ranks_per_gpu > 1 && s.uses_mig)
    out.push_back(cat(s.max_ranks_per_gpu,
                      " ranks share a MIG slice of a GPU, of which a process sees one: right for tests, slow for "
                      "training. list a slice for each rank of a host in CUDA_VISIBLE_DEVICES (nvidia-smi -L)"));
  else if (s.max_ranks_per_gpu > 1)
    out.push_back(
        cat(s.max_ranks_per_gpu, " ranks share a GPU: right for tests, slow for training. start one rank a GPU"));
  else if (s.max_ranks_per_physical_gpu > 1)
    out.push_back(cat(s.max_ranks_per_physical_gpu,
                      " ranks are on MIG slices of one GPU, so sums go by way of host memory and steps are no graphs. "
                      "one rank on the whole GPU is faster"));
  return out;
}

std::string why_not_nccl(const GpuTopology& s) {
  if (s.max_ranks_per_gpu > 1) return "nccl needs a GPU for every rank, here ranks share one. set it to mpi or auto";
  if (s.max_ranks_per_physical_gpu > 1) return "nccl does not sum over MIG slices of one GPU. set it to mpi or auto";
  return "";
}

}  // namespace millrace::cuda
