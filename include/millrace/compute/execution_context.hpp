// ExecutionContext: the device of a rank, the operations that run on it, and the communication between ranks. It is
// created once, when the program starts. The code that uses it works with the three abstract classes and does not know
// whether they are for the CPU or for a GPU.
#pragma once
#include <memory>
#include <string>

#include "millrace/comm/collective.hpp"
#include "millrace/comm/placement.hpp"
#include "millrace/device/device.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace {

// The members are destroyed in reverse order: each uses those above it.
struct ExecutionContext {
  std::string fallback_reason;  // why run.device = auto chose the CPU; otherwise empty
  std::unique_ptr<Device> device;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Collective> collective;
  // For what the ranks exchange inside of operations (ops/rank_exchange.hpp), beside the gradients, so that neither
  // waits for the other. Null: `collective` does that, in the order of its other operations.
  std::unique_ptr<Collective> exchange;
};

// Options that apply to GPUs only (the cuda.* keys).
struct CudaOptions {
  // Capture a step as a CUDA graph and replay it; false: launch its kernels one by one, for debugging.
  bool graph = true;
  // The largest number of micro-batches in one graph; a step with more becomes several graphs. Each micro-batch of a
  // graph needs its own slot for samples on the device: a graph can only wait for copies that were enqueued before its
  // launch, so the samples of all its micro-batches are copied before that.
  int graph_micro_batches = 16;
  // Breadcrumbs locate a fault inside a captured step: before each operation (each), or before every sixteenth (some),
  // a kernel with one thread writes the operation's number to host memory.
  enum class Breadcrumbs { none, some, each };
  Breadcrumbs breadcrumbs = Breadcrumbs::some;
  bool autotune = true;  // time the candidate kernels of convolutions and matrix multiplications, and use the fastest
  bool tf32 = false;     // with fp32: tensor cores may round the factors of products to 10 bits of mantissa
  // Kernels of millrace may be launched before the kernel before them has ended (cuda/block/block.hpp). Needs compute
  // capability 9.0. Off until it has run on a GPU.
  bool dependent_launch = false;
  // Norms whose tensors fit into the shared memory of all multiprocessors read them once, in a kernel whose blocks wait
  // for each other (cuda/kernels/batch_norm_resident.hpp). For one rank. Off until it has run on a GPU.
  bool persistent_norm = false;
  std::size_t workspace = std::size_t(512) << 20;  // bytes; the largest workspace of one convolution
  enum class CollectiveBackend { automatic, nccl, mpi };
  CollectiveBackend collective_backend = CollectiveBackend::automatic;  // automatic: NCCL if no ranks share a GPU
  // The largest number of thread blocks of an NCCL kernel; 0: NCCL chooses it from the links between the GPUs. A limit
  // leaves more multiprocessors to the kernels beside it, but each operation takes longer, and the last one of a step
  // is beside nothing. `millrace tune` measures which wins.
  int nccl_max_ctas = 0;
  enum class NcclCtaPolicy { automatic, efficiency };  // efficiency: few thread blocks where the bandwidth allows it
  NcclCtaPolicy nccl_cta_policy = NcclCtaPolicy::automatic;
  bool nccl_windows = true;  // register gradients and weights as symmetric windows, if NCCL can on all ranks
};

// Options that apply to the CPU only (the cpu.* keys).
struct CpuOptions {
  enum class Winograd { automatic, off };
  Winograd winograd = Winograd::automatic;  // 3x3 convolutions by Winograd's filtering, where that is faster
  bool autotune = true;  // time the methods of each convolution, and use the fastest. Not if `deterministic`
};

struct ExecutionOptions {
  Placement placement;
  CollectiveOptions collective;
  bool deterministic = false;
  bool exchanges = false;  // operations exchange values
  CpuOptions cpu{.autotune = false};
  CudaOptions cuda;
};

ExecutionContext make_cpu_context(World&, const ExecutionOptions&);
// Collective. Error(config) on all ranks if a GPU or a library is missing; the message says how to get it.
ExecutionContext make_cuda_context(World&, const ExecutionOptions&);
// Whether this process has a GPU; why_not (may be null): the reason if it has none. Never throws. Only counts the
// devices.
bool cuda_usable(const World&, std::string* why_not);
// The cores on the NUMA node of the GPU that this rank will take; empty: unknown. Starts nothing on the GPU.
std::vector<int> cpus_near_gpu(const World&);
// The GPUs that this process sees, "2 x NVIDIA H200 (140 GiB, compute capability 9.0)", or why it sees none.
std::string describe_gpus();

}  // namespace millrace
