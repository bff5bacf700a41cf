#pragma once
#include "cuda/block/block.hpp"

namespace millrace::cuda {

// Enqueues ++*counter. The counter may be in page-locked host memory, so that the host can read it at any time. The
// increment is not atomic: use one stream at a time for each counter.
void increment_counter(const LaunchContext&, std::uint64_t* counter);

}  // namespace millrace::cuda
