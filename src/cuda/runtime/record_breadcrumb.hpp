#pragma once
#include "cuda/runtime/block.hpp"

namespace millrace::cuda {

// *word = place when the stream gets there; before that ++*runs, where there is one. Both in page-locked host memory:
// they are read there when what follows has failed.
void record_breadcrumb(const LaunchContext&, std::uint64_t* word, std::uint64_t place, std::uint64_t* runs);

}  // namespace millrace::cuda
