// Makes a rank's GPU ready: which one, its backend, and how its ranks sum.
#include "millrace/compute/compute.hpp"

#include <cuda_runtime.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "cuda/backend.hpp"
#include "cuda/dnn/cublas_library.hpp"
#include "cuda/dnn/cudnn_library.hpp"
#include "cuda/nccl/nccl_collective.hpp"
#include "cuda/nccl/nccl_library.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/device.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

using namespace cuda;

int gpu_count(std::string* why_not) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver), cudaRuntimeGetVersion(&runtime);
  if (why_not) *why_not = explain_no_gpu(status, driver, runtime, std::getenv("CUDA_VISIBLE_DEVICES"));
  return 0;
}

// Of all ranks. A host's name has no spaces.
std::vector<Seat> gather_seats(World& world, const Seat& mine) {
  std::vector<Seat> seats;
  for (const std::string& text : world.gather(cat(mine.host, ' ', mine.bus_id, ' ', mine.visible, ' ', mine.slice))) {
    Seat seat;
    std::istringstream(text) >> seat.host >> seat.bus_id >> seat.visible >> seat.slice;
    seats.push_back(seat);
  }
  return seats;
}

// Before CUDA is first called: it reads the environment once.
void choose_slice(const World& world) {
  const std::string slice = slice_for(std::getenv("CUDA_VISIBLE_DEVICES"), world.local_rank());
  if (!slice.empty()) ::setenv("CUDA_VISIBLE_DEVICES", slice.c_str(), 1);
}

template <class Action>
std::string problem_of(const Action& action) {
  try {
    action();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace

bool cuda_usable(const World& world, std::string* why_not) {
  choose_slice(world);
  return gpu_count(why_not) > 0;
}

std::string describe_gpus() {
  std::string why_not, out;
  const int count = gpu_count(&why_not);
  std::map<std::string, int> kinds;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    MR_CUDA(cudaGetDeviceProperties(&p, i));
    ++kinds[cat(p.name, " (", format_bytes(p.totalGlobalMem), ", compute capability ", p.major, ".", p.minor, ")")];
  }
  for (const auto& [name, n] : kinds) out += cat(out.empty() ? "" : ", ", n, " x ", name);
  return count > 0 ? out : "none: " + why_not;
}

ExecutionContext make_cuda_context(World& world, const ExecutionOptions& options) {
  std::string problem;
  choose_slice(world);
  const int count = gpu_count(&problem);
  world.agree(Exit::config, problem.empty() ? "" : "run.device: " + problem);
  ExecutionContext compute;
  std::unique_ptr<CudaDevice> device;
  world.agree(Exit::config, problem_of([&] {
                cudnn_library.load(), cublas_library.load();
                device = std::make_unique<CudaDevice>(
                    world.local_rank() % count,
                    DeviceOptions{options.cuda.graph, options.cuda.graph_micro_batches,
                                  options.collective.timeout_seconds, world.rank(), options.cuda.breadcrumbs});
              }));
  const auto seats = gather_seats(world, {world.host(), device->bus_id(), count, device->slice()});
  const Seating seating = seating_of(seats, std::size_t(world.rank()));
  for (const std::string& warning : warnings_of(seating)) log::warn(warning);
  using Sums = CudaOptions::Sums;
  const std::string not_nccl = why_not_nccl(seating);
  const bool by_host = world.size() > 1 && (!not_nccl.empty() || options.cuda.sums == Sums::mpi);
  if (by_host && options.cuda.sums == Sums::nccl) fail(Exit::config, "comm.backend: ", not_nccl);
  if (world.size() > 1 && !by_host) world.agree(Exit::config, problem_of([] { nccl_library.load(); }));
  CudaDevice& gpu = *device;
  compute.device = std::move(device);
  compute.backend = make_cuda_backend(world, gpu, options);
  if (by_host) {
    gpu.forbid_graphs();  // the host takes part in every sum
    compute.collective = cuda::make_staged_collective(world, gpu, options.collective);
  } else {
    compute.collective = make_nccl_collective(world, gpu, options.collective, options.cuda.channels);
  }
  gpu.share_memory(seating.sharers);
  return compute;
}

}  // namespace millrace
