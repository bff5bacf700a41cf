#pragma once
#include "cuda/runtime/block.hpp"

namespace millrace::cuda {

// ++*counter when the stream gets there. The counter may lie in page-locked host memory, for a host that looks now and
// then; one stream at a time.
void increment_counter(const LaunchContext&, std::uint64_t* counter);

}  // namespace millrace::cuda
