// Offsets in workspaces and other buffers of operations.
#pragma once
#include <cstddef>

namespace millrace::cuda {

// Rounds up to a multiple of 64, the alignment of the parts of a buffer.
constexpr std::size_t align64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// The address at an offset in a buffer.
inline void* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

}  // namespace millrace::cuda
