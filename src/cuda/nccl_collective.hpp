// The collectives of GPUs.
#pragma once
#include <memory>

#include "device.hpp"
#include "millrace/comm/collective.hpp"

namespace millrace::cuda {

// By NCCL, one rank a GPU. Sums are exact to rounding but not in rank order: their order is NCCL's. begin_* and finish
// only put work into streams and may be part of a captured step, begin_* and its finish() of the same one; such
// operations give no spans, and when they are replayed it is the device's waits that have a deadline. The capture must
// be thread-local: a watchdog thread asks CUDA about events meanwhile. A rank that is late for more than
// timeout_seconds, or an error of NCCL's, ends all ranks by World::abort with one line that says which operation and,
// on this host, which rank. small_sum adds in rank order, on the hosts. channels: blocks that a sum may occupy on the
// GPU at most, 0 for NCCL's choice. even_alone: a single rank goes through NCCL too (tests).
std::unique_ptr<Collective> make_nccl_collective(World&, CudaDevice&, const CollectiveOptions&, int channels,
                                                 bool even_alone = false);

// Through host memory (millrace/comm/staged.hpp), page-locked: several ranks on one GPU, or no NCCL. Not capturable.
std::unique_ptr<Collective> make_staged_collective(World&, CudaDevice&, const CollectiveOptions&);

}  // namespace millrace::cuda
