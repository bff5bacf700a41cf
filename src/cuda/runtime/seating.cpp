// How the ranks' GPUs lie, and what that means for them: see device.hpp.
#include <algorithm>
#include <string_view>

#include "cuda/runtime/device.hpp"

namespace millrace::cuda {
namespace {

constexpr std::string_view slice_begins = "MIG-";  // in CUDA_VISIBLE_DEVICES

std::vector<std::string> slices_in(const char* visible) {
  std::vector<std::string> slices;
  std::string_view rest = visible ? visible : "";
  while (rest.starts_with(slice_begins)) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    slices.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return slices;
}

}  // namespace

std::string slice_of(const std::string& name, std::span<const char> uuid, const char* visible) {
  const auto slices = slices_in(visible);
  if (slices.empty() && name.find(" MIG ") == name.npos) return "";
  std::string text;
  for (const char c : uuid)
    for (const int digit : {(c >> 4) & 15, c & 15}) text += "0123456789abcdef"[digit];
  return slices.empty() ? text : text + "/" + slices.front();  // older drivers give the whole GPU's identifier
}

std::string slice_for(const char* visible, int local_rank) {
  const auto slices = slices_in(visible);
  return slices.size() < 2 ? "" : slices[std::size_t(local_rank) % slices.size()];
}

Seating seating_of(const std::vector<Seat>& seats, std::size_t rank) {
  Seating seating;
  for (const Seat& seat : seats) {
    int sharers = 0, on_gpu = 0;
    for (const Seat& other : seats) {
      if (other.host != seat.host) continue;
      const bool same_gpu = other.bus_id == seat.bus_id;
      on_gpu += same_gpu;
      sharers += same_gpu && other.slice == seat.slice;
      const bool both_see_one = other.visible == 1 && seat.visible == 1 && other.slice.empty() && seat.slice.empty();
      if (!same_gpu && both_see_one && seating.hidden.empty()) seating.hidden = seat.host;
    }
    if (&seat == &seats.at(rank)) seating.sharers = sharers;
    seating.most_sharers = std::max(seating.most_sharers, sharers);
    seating.most_on_gpu = std::max(seating.most_on_gpu, on_gpu);
    seating.sliced = seating.sliced || !seat.slice.empty();
  }
  return seating;
}

std::vector<std::string> warnings_of(const Seating& s) {
  std::vector<std::string> out;
  if (!s.hidden.empty())
    out.push_back(cat("each rank on ", s.hidden,
                      " sees a single GPU of that host, so NCCL cannot use the links between them. use --gpus-per-node "
                      "(not --gpus-per-task), or unset CUDA_VISIBLE_DEVICES"));
  if (s.most_sharers > 1 && s.sliced)
    out.push_back(cat(s.most_sharers,
                      " ranks share a MIG slice of a GPU, of which a process sees one: right for tests, slow for "
                      "training. list a slice for each rank of a host in CUDA_VISIBLE_DEVICES (nvidia-smi -L)"));
  else if (s.most_sharers > 1)
    out.push_back(cat(s.most_sharers, " ranks share a GPU: right for tests, slow for training. start one rank a GPU"));
  else if (s.most_on_gpu > 1)
    out.push_back(cat(s.most_on_gpu,
                      " ranks are on MIG slices of one GPU, so sums go by way of host memory and steps are no graphs. "
                      "one rank on the whole GPU is faster"));
  return out;
}

std::string why_not_nccl(const Seating& s) {
  if (s.most_sharers > 1) return "nccl needs a GPU for every rank, here ranks share one. set it to mpi or auto";
  if (s.most_on_gpu > 1) return "nccl does not sum over MIG slices of one GPU. set it to mpi or auto";
  return "";
}

}  // namespace millrace::cuda
