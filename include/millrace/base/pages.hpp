// Memory in whole pages, for large arrays.
#pragma once
#include <cstddef>

namespace millrace {

inline constexpr std::size_t page_bytes = 4096;

constexpr std::size_t padded_to_pages(std::size_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

// From 4 MiB on, asks the kernel for huge pages, so that fewer addresses have to be translated. The memory begins at a
// page and was not written yet. This is only for speed, so a failure is ignored.
void prefer_huge_pages(void* data, std::size_t bytes) noexcept;

// Memory filled with zeros. It begins at a page; from 4 MiB on, at a huge page of 2 MiB. The caller frees it with
// std::free. Null if there is not enough memory.
void* allocate_pages(std::size_t bytes);

}  // namespace millrace
