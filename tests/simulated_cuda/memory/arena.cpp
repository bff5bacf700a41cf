#include "simulated_cuda/memory/arena.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "simulated_cuda/simulator.hpp"

namespace millrace::simulated {
namespace {

constexpr std::size_t arena_bytes = std::size_t(1) << 40;
// MADV_GUARD_INSTALL and MADV_GUARD_REMOVE, which older headers lack.
constexpr int guard_install = 102, guard_remove = 103;

void advise(char* p, std::size_t bytes, int advice) {
  if (::madvise(p, bytes, advice) != 0)
    violation("device memory", fmt::format("guards cannot be changed ({})", std::strerror(errno)));
}

}  // namespace

char* reserve(char* at, std::size_t bytes, int flags) {
  void* mapped = ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  ::madvise(mapped, bytes, MADV_HUGEPAGE);  // or each change of protection would walk the many pages of large memory
  return static_cast<char*>(mapped);
}

Arena::Arena() {
  char* const mapped = reserve(nullptr, arena_bytes, 0);
  if (!mapped) return;
  if (::madvise(mapped, page_bytes, guard_install) != 0) {
    ::munmap(mapped, arena_bytes);
    return;
  }
  begin_ = mapped;
  end_ = begin_ + page_bytes;
}

Arena* Arena::get() {
  static Arena* const arena = new Arena;  // never destroyed, because streams may outlive main()
  return arena->begin_ ? arena : nullptr;
}

char* Arena::take_hole(std::size_t bytes) {
  const auto hole = std::find_if(holes_.begin(), holes_.end(), [&](const auto& h) { return h.second >= bytes; });
  if (hole == holes_.end()) return nullptr;
  const auto [p, size] = *hole;
  holes_.erase(hole);
  if (size > bytes) holes_[p + bytes] = size - bytes;
  advise(p, bytes - page_bytes, guard_remove);
  return p;
}

char* Arena::allocate(std::size_t bytes) {
  char* p = take_hole(bytes);
  if (!p) {
    if (bytes > std::size_t(begin_ + arena_bytes - end_)) return nullptr;
    p = end_;
    end_ += bytes;
    advise(end_ - page_bytes, page_bytes, guard_install);
  }
  live_[p] = bytes;
  ::mprotect(p, bytes - page_bytes, PROT_READ | PROT_WRITE);
  return p;
}

void Arena::free(char* p, std::size_t bytes) {
  live_.erase(p);
  if (p + bytes != end_) {
    advise(p, bytes, guard_install);
    holes_[p] = bytes;
    return;
  }
  // What lies behind the last allocation is reserved anew, which also removes its page tables.
  end_ = live_.empty() ? begin_ + page_bytes : live_.rbegin()->first + live_.rbegin()->second;
  holes_.erase(holes_.lower_bound(end_), holes_.end());
  if (!reserve(end_, std::size_t(p + bytes - end_), MAP_FIXED))
    violation("device memory", fmt::format("freed addresses cannot be reserved ({})", std::strerror(errno)));
}

void Arena::protect(int protection) const { ::mprotect(begin_, std::size_t(end_ - begin_), protection); }

}  // namespace millrace::simulated
