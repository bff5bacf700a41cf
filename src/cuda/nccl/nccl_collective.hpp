// The implementations of Collective for GPUs.
#pragma once
#include <memory>

#include "cuda/runtime/device.hpp"
#include "millrace/comm/collective.hpp"
#include "millrace/compute/execution_context.hpp"

namespace millrace::cuda {

// Collectives with NCCL. Each rank has its own GPU.
//
// Order of additions: an all-reduce adds in NCCL's order, not in the order of the ranks. all_reduce_scalars() adds in
// the order of the ranks, on the host.
//
// Captured steps: the *_async functions and finish() only enqueue work, so a captured step may contain them. It must
// contain the finish() too, and all ranks must capture the same operations. The captured step must be destroyed before
// the collective, because a communicator waits for the graphs that use it. The capture must be thread-local, because
// the watchdog thread of the collective queries events at the same time.
//
// Watchdog: if an operation takes longer than timeout_seconds, replayed or not, or if NCCL fails, the watchdog thread
// ends all ranks with World::abort. Its message names the operation and the ranks that are stopped, that have not begun
// it, or whose host does not answer. The first host whose ranks wait prints it.
//
// even_alone: a single rank uses NCCL too, for tests.
std::unique_ptr<Collective> make_nccl_collective(World&, CudaDevice&, const CollectiveOptions&, const CudaOptions&,
                                                 bool even_alone = false);

// Collectives through page-locked host memory (millrace/comm/staged.hpp), for several ranks on one GPU, or without
// NCCL. They cannot be captured.
std::unique_ptr<Collective> make_staged_collective(World&, CudaDevice&, const CollectiveOptions&);

}  // namespace millrace::cuda
