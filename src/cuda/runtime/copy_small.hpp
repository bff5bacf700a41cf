#pragma once
#include <cstddef>

#include "cuda/block/block.hpp"

namespace millrace::cuda {

// Enqueues a copy by a kernel. Both sides are device memory or page-locked host memory; bytes is a multiple of 4.
void copy_small(const LaunchContext&, void* to, const void* from, std::size_t bytes);

}  // namespace millrace::cuda
