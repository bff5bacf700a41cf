// Memory in whole pages, for large arrays.
#pragma once
#include <cstddef>

namespace millrace {

inline constexpr std::size_t page_bytes = 4096;

constexpr std::size_t padded_to_pages(std::size_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

// Asks for huge pages, if `bytes` are many, for memory that begins at a page and was never written. A step that works
// on all weights and gradients then misses the translation of fewer addresses. Only for speed, so a failure is ignored.
void prefer_huge_pages(void* data, std::size_t bytes) noexcept;

// Zeros. Begins at a page, and if there are many bytes, at a huge page. The caller frees it with std::free. Null if
// there is not enough memory.
void* allocate_pages(std::size_t bytes);

}  // namespace millrace
