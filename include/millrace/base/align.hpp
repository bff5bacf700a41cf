// Sizes and offsets that are multiples of a cache line, and quotients that are rounded up.
#pragma once
#include <cstddef>
#include <cstdint>

namespace millrace {

// The next multiple of 64.
constexpr std::size_t align64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace millrace
