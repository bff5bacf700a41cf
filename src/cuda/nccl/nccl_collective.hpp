// The collectives of GPUs.
#pragma once
#include <memory>

#include "cuda/runtime/device.hpp"
#include "millrace/comm/collective.hpp"

namespace millrace::cuda {

// By NCCL, one rank a GPU. Sums are exact to rounding but not in rank order: their order is NCCL's; all_reduce_scalars
// adds in rank order, on the hosts. begin_* and finish only put work into streams; a captured step may hold begin_*
// together with its finish(), on all ranks in the same step or on none, and its graph must end before the collective
// does: a communicator waits for the graphs that use it. Operations of replays give no spans. The capture must be
// thread-local: a thread of the collective's asks CUDA about events meanwhile. When sums last longer than
// timeout_seconds, replayed ones too, or when NCCL fails, that thread ends all ranks by World::abort with one line that
// says which operation it is and, on this host, which rank is late. channels: blocks that a sum may occupy on the GPU
// at most, 0 for the usual number. even_alone: a single rank goes through NCCL too (tests).
std::unique_ptr<Collective> make_nccl_collective(World&, CudaDevice&, const CollectiveOptions&, int max_ctas,
                                                 bool even_alone = false);

// Through host memory (millrace/comm/staged.hpp), page-locked: several ranks on one GPU, or no NCCL. Not capturable.
std::unique_ptr<Collective> make_staged_collective(World&, CudaDevice&, const CollectiveOptions&);

}  // namespace millrace::cuda
