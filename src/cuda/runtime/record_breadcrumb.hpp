#pragma once
#include "cuda/block/block.hpp"

namespace millrace::cuda {

// Enqueues *word = place, and before it ++*runs unless runs is null. Both are in page-locked host memory, which the
// host can read after a kernel has failed; see flight_recorder.hpp.
void record_breadcrumb(const LaunchContext&, std::uint64_t* word, std::uint64_t place, std::uint64_t* runs);

}  // namespace millrace::cuda
