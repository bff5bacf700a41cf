// Internal to the simulated memory: device memory whose protection one call changes.
#pragma once
#include <cstddef>
#include <map>

namespace millrace::simulated {

constexpr std::size_t page_bytes = 4096;

// Takes addresses that nothing can access. Null: there are none.
char* reserve(char* at, std::size_t bytes, int flags);

// All allocations lie in one range of addresses, so that one call protects them: a call for each took three quarters of
// the time of some tests. Guards of the kernel lie between them and cover what was freed; mprotect() leaves guards in
// place. Not thread-safe.
class Arena {
 public:
  // Null if the kernel has no guards (Linux before 6.13) or gives no addresses.
  static Arena* get();

  // The last page is a guard. Readable and writable until the next protect(). Null: the addresses are used up.
  char* allocate(std::size_t bytes);
  void free(char* p, std::size_t bytes);
  void protect(int protection) const;

 private:
  char* begin_ = nullptr;
  char* end_ = nullptr;                 // of the last allocation
  std::map<char*, std::size_t> live_;   // allocations: sizes in bytes by address
  std::map<char*, std::size_t> holes_;  // freed addresses before end_, all guards

  Arena();
  char* take_hole(std::size_t bytes);
};

}  // namespace millrace::simulated
