// Offsets in workspaces and other buffers of operations.
#pragma once
#include <cstddef>

#include "millrace/base/align.hpp"

namespace millrace::cuda {

// The address at an offset in a buffer.
inline void* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

}  // namespace millrace::cuda
