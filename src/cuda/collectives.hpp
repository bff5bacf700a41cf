// The collectives of GPUs.
#pragma once
#include <memory>

#include "device.hpp"
#include "millrace/comm/collective.hpp"

namespace millrace::cuda {

struct NcclOptions {
  int max_ctas = 0;         // blocks that a sum may occupy on the GPU, at most; 0: NCCL's choice
  bool even_alone = false;  // tests: one rank goes through NCCL too
};

// By NCCL, one rank a GPU. Sums are exact to rounding but not in rank order: their order is NCCL's. begin_* and finish
// only put work into streams and may be part of a captured step; such operations give no spans. The capture must be
// thread-local (a watchdog thread asks CUDA about events meanwhile) and must end with the comm stream joined to the
// compute stream, since finish() may come after it. A rank that is late for more than timeout_seconds, or an error of
// NCCL's, ends all ranks by World::abort with one line that says which operation and, on this host, which rank.
// small_sum adds in rank order, on the hosts.
std::unique_ptr<Collective> make_nccl_collective(World&, CudaDevice&, const CollectiveOptions&,
                                                 const NcclOptions& = {});

// Through host memory (millrace/comm/staged.hpp), page-locked: several ranks on one GPU, or no NCCL. Not capturable.
std::unique_ptr<Collective> make_staged_cuda_collective(World&, CudaDevice&, const CollectiveOptions&);

}  // namespace millrace::cuda
