// Compute: the three classes that carry every difference between processors, made together, once, at the top. Nothing
// above asks which it got.
#pragma once
#include <memory>
#include <string>

#include "millrace/comm/collective.hpp"
#include "millrace/comm/placement.hpp"
#include "millrace/device/device.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace {

struct ExecutionContext {  // destroyed in reverse order
  std::string why;         // run.device = auto took the processor; else empty
  std::unique_ptr<Device> device;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Collective> collective;
};

// What only a GPU obeys.
struct CudaOptions {
  bool graph = true;  // a step is captured once and replayed; false: launched one by one, for debugging
  // Micro-batches of a graph, at most: a step of more is several graphs. Each has its own place for samples on the
  // device, since a graph can only wait for copies that were enqueued before it.
  int graph_micro_batches = 16;
  // Marks by which a failure within a recorded step is known to be of one operation (each), or of sixteen (some). A
  // mark is a kernel of one thread, a microsecond or two of the step.
  enum class Breadcrumbs { none, some, each };
  Breadcrumbs breadcrumbs = Breadcrumbs::each;
  bool autotune = true;  // convolutions and matrix products: time the candidates and keep the fastest
  bool tf32 = false;     // fp32: let tensor cores round factors to 10 bits of mantissa
  std::size_t workspace = std::size_t(512) << 20;  // most that one convolution may take as scratch
  enum class Sums { automatic, nccl, mpi };
  Sums collective_backend = Sums::automatic;  // automatic: NCCL where every rank has a GPU of its own
  int nccl_max_ctas = 0;  // most blocks that NCCL may take from the step; 0: 8 on one host, 16 over several
};

struct ExecutionOptions {
  Placement placement;
  CollectiveOptions collective;
  bool deterministic = false;
  CudaOptions cuda;
};

ExecutionContext make_cpu_context(World&, const ExecutionOptions&);
ExecutionContext make_cuda_context(World&,
                                   const ExecutionOptions&);  // Error(config) saying what is missing and how to get it
bool cuda_usable(const World&, std::string* why_not);  // never throws; does not touch devices beyond counting them
// The GPUs that this process sees, "2 x NVIDIA H200 (140 GiB, compute capability 9.0)", or why there are none.
std::string describe_gpus();

}  // namespace millrace
