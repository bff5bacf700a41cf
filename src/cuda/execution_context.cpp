// Chooses the GPU of a rank, and makes its device, its backend and its collective.
#include "millrace/compute/execution_context.hpp"

#include <cuda_runtime.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "cuda/backend.hpp"
#include "cuda/dnn/cublas_library.hpp"
#include "cuda/dnn/cudnn_library.hpp"
#include "cuda/errors/check.hpp"
#include "cuda/nccl/nccl_collective.hpp"
#include "cuda/nccl/nccl_library.hpp"
#include "cuda/runtime/device.hpp"
#include "cuda/runtime/gpu_topology.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/system/cores.hpp"

namespace millrace {
namespace {

using namespace cuda;

// Seconds. The watchdog of the collectives names the rank that is late, so it speaks before a thread that waits for the
// GPU gives up.
constexpr double later_than_watchdog = 10;

int gpu_count(std::string* why_not) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (why_not) *why_not = explain_no_gpu(status, driver, runtime, std::getenv("CUDA_VISIBLE_DEVICES"));
  return 0;
}

// The assignments of all ranks, in their order. Collective. Host names have no spaces, so spaces separate the fields.
std::vector<GpuAssignment> gather_gpu_assignments(World& world, const GpuAssignment& mine) {
  std::vector<GpuAssignment> out;
  for (const std::string& text :
       world.gather(fmt::format("{} {} {} {}", mine.host, mine.bus_id, mine.visible, mine.mig_instance))) {
    GpuAssignment one;
    std::istringstream(text) >> one.host >> one.bus_id >> one.visible >> one.mig_instance;
    out.push_back(one);
  }
  return out;
}

// Must run before the first call of CUDA, which reads CUDA_VISIBLE_DEVICES once.
void select_mig_instance(const World& world) {
  const std::string mig_instance = mig_instance_for(std::getenv("CUDA_VISIBLE_DEVICES"), world.local_rank());
  if (!mig_instance.empty()) ::setenv("CUDA_VISIBLE_DEVICES", mig_instance.c_str(), 1);
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
  select_mig_instance(world);
  return gpu_count(why_not) > 0;
}

std::vector<int> cpus_near_gpu(const World& world) {
  select_mig_instance(world);
  const int count = gpu_count(nullptr);
  char id[32] = "";
  if (count == 0 || cudaDeviceGetPCIBusId(id, sizeof id, world.local_rank() % count) != cudaSuccess) {
    (void)cudaGetLastError();
    return {};
  }
  std::string list, path = id;
  std::transform(path.begin(), path.end(), path.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  std::getline(std::ifstream("/sys/bus/pci/devices/" + path + "/local_cpulist"), list);
  return parse_cpu_list(list);
}

std::string describe_gpus() {
  std::string why_not, out;
  const int count = gpu_count(&why_not);
  std::map<std::string, int> kinds;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    MR_CUDA(cudaGetDeviceProperties(&p, i));
    ++kinds[fmt::format("{} ({}, compute capability {}.{})", p.name, format_bytes(p.totalGlobalMem), p.major, p.minor)];
  }
  for (const auto& [name, n] : kinds) out += fmt::format("{}{} x {}", out.empty() ? "" : ", ", n, name);
  return count > 0 ? out : "none: " + why_not;
}

ExecutionContext make_cuda_context(World& world, const ExecutionOptions& options) {
  std::string problem;
  select_mig_instance(world);
  const int count = gpu_count(&problem);
  world.agree(Exit::config, problem.empty() ? "" : "run.device: " + problem);
  ExecutionContext compute;
  std::unique_ptr<CudaDevice> device;
  world.agree(Exit::config, problem_of([&] {
                cudnn_library.load();
                cublas_library.load();
                device = std::make_unique<CudaDevice>(
                    world.local_rank() % count, DeviceOptions{options.cuda.graph, options.cuda.graph_micro_batches,
                                                              options.collective.timeout_seconds + later_than_watchdog,
                                                              world.rank(), options.cuda.breadcrumbs});
              }));
  const auto assignments =
      gather_gpu_assignments(world, {world.host(), device->bus_id(), count, device->mig_instance()});
  const GpuTopology topology = gpu_topology_of(assignments, std::size_t(world.rank()));
  for (const std::string& warning : topology_warnings(topology)) log::warn(warning);
  using Choice = CudaOptions::CollectiveBackend;
  const std::string not_nccl = why_not_nccl(topology);
  const bool through_host = world.size() > 1 && (!not_nccl.empty() || options.cuda.collective_backend == Choice::mpi);
  if (through_host && options.cuda.collective_backend == Choice::nccl) fail(Exit::config, "comm.backend: {}", not_nccl);
  if (world.size() > 1 && !through_host) world.agree(Exit::config, problem_of([] { nccl_library.load(); }));
  CudaDevice& gpu = *device;
  compute.device = std::move(device);
  compute.backend = make_cuda_backend(world, gpu, options);
  if (through_host) {
    gpu.disable_graphs("gradients are reduced through host memory, which a graph cannot contain");
    compute.collective = cuda::make_staged_collective(world, gpu, options.collective);
  } else {
    compute.collective = make_nccl_collective(world, gpu, options.collective, options.cuda);
  }
  gpu.set_memory_share(topology.ranks_per_gpu);
  return compute;
}

}  // namespace millrace
