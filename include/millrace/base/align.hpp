// Sizes and offsets that are multiples of a cache line.
#pragma once
#include <cstddef>

namespace millrace {

// The next multiple of 64.
constexpr std::size_t align64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace millrace
