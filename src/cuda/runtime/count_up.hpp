#pragma once
#include "cuda/runtime/block.hpp"

namespace millrace::cuda {

// ++*counter when the stream gets there. The counter may lie in page-locked host memory, for a host that looks now and
// then; one stream at a time.
void count_up(const Context&, std::uint64_t* counter);

}  // namespace millrace::cuda
