#include "millrace/base/pages.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace millrace {
namespace {

constexpr std::size_t huge_page = 2u << 20, large = 2 * huge_page;

}  // namespace

void prefer_huge_pages(void* data, std::size_t bytes) noexcept {
  if (bytes >= large) madvise(data, bytes, MADV_HUGEPAGE);
}

void* allocate_pages(std::size_t bytes) {
  const std::size_t padded = padded_to_pages(bytes);
  void* data = nullptr;
  if (::posix_memalign(&data, padded >= large ? huge_page : page_bytes, padded) != 0) return nullptr;
  prefer_huge_pages(data, padded);
  std::memset(data, 0, padded);
  return data;
}

}  // namespace millrace
