// Makes a rank's GPU ready: which one, its backend, and how its ranks sum.
#include "millrace/compute/compute.hpp"

#include <cuda_runtime.h>

#include <cstdlib>
#include <sstream>

#include "backend.hpp"
#include "device.hpp"
#include "millrace/base/log.hpp"
#include "nccl_collective.hpp"

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
  const auto version = [](int v) { return cat(v / 1000, ".", v % 1000 / 10); };
  if (!why_not) return 0;
  if (status == cudaErrorInsufficientDriver && driver > 0)
    *why_not = cat("the NVIDIA driver serves CUDA ", version(driver), ", this millrace needs ", version(runtime),
                   ". update the driver");
  else if (status == cudaErrorInsufficientDriver)
    *why_not = "no NVIDIA driver on this machine. set run.device = cpu (or auto), or start on a node with GPUs";
  else if (std::getenv("CUDA_VISIBLE_DEVICES"))
    *why_not = cat("CUDA_VISIBLE_DEVICES = '", std::getenv("CUDA_VISIBLE_DEVICES"), "' leaves no GPU (",
                   cudaGetErrorString(status), ")");
  else
    *why_not = cat("no GPU (", cudaGetErrorString(status), "). ask the scheduler for one, or set run.device = cpu");
  return 0;
}

// Of all ranks. A host's name has no spaces.
std::vector<Seat> gather_seats(World& world, const std::string& bus_id, int visible) {
  std::vector<Seat> seats;
  for (const std::string& text : world.gather(cat(world.host(), ' ', bus_id, ' ', visible))) {
    Seat seat;
    std::istringstream(text) >> seat.host >> seat.bus_id >> seat.visible;
    seats.push_back(seat);
  }
  return seats;
}

}  // namespace

bool cuda_usable(std::string* why_not) { return gpu_count(why_not) > 0; }

Compute make_cuda_compute(World& world, const ComputeOptions& options) {
  std::string problem;
  const int count = gpu_count(&problem);
  world.agree(Exit::config, problem.empty() ? "" : "run.device: " + problem);
  Compute compute;
  std::unique_ptr<CudaDevice> device;
  try {
    device = std::make_unique<CudaDevice>(world.local_rank() % count,
                                          DeviceOptions{options.cuda.graph, options.cuda.graph_batches,
                                                        options.collective.timeout_seconds, world.rank()});
  } catch (const Error& e) {
    problem = e.what();
  }
  world.agree(Exit::config, problem);
  const Seating seating = seating_of(gather_seats(world, device->bus_id(), count), std::size_t(world.rank()));
  device->share_among(seating.sharers);
  if (seating.hidden)
    log::warn(
        "each rank sees a single GPU of this host, so NCCL cannot use the links between them. use --gpus-per-node "
        "(not --gpus-per-task), or unset CUDA_VISIBLE_DEVICES");
  if (seating.sharers > 1)
    log::warn(cat(seating.sharers, " ranks share a GPU: right for tests, slow for training. start one rank a GPU"));
  using Sums = CudaOptions::Sums;
  if (seating.shared && options.cuda.sums == Sums::nccl)
    fail(Exit::config, "comm.backend: nccl needs a GPU for every rank, here ranks share one. set it to mpi or auto");
  CudaDevice& gpu = *device;
  compute.device = std::move(device);
  compute.backend = make_cuda_backend(world, gpu, options);
  if (world.size() > 1 && (seating.shared || options.cuda.sums == Sums::mpi)) {
    gpu.forbid_graphs();  // the host takes part in every sum
    compute.collective = cuda::make_staged_collective(world, gpu, options.collective);
  } else {
    compute.collective = make_nccl_collective(world, gpu, options.collective, options.cuda.channels);
  }
  return compute;
}

}  // namespace millrace
