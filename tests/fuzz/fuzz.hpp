// What the fuzzers share. Any bytes are an input: what reads them either works or throws an Error of bad input. All
// else (a crash, another exception, a broken invariant, memory beyond the limit, no end) is a finding.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "millrace/base/error.hpp"

namespace millrace::fuzz {

template <class F>
void refuses_or_works(F f) {
  try {
    f();
  } catch (const Error& e) {
    if (e.code() != Exit::data && e.code() != Exit::config) std::fprintf(stderr, "%s\n", e.what()), std::abort();
  }
}

// libFuzzer's counters of what this process covered of the code. (covered.cpp)
std::span<char> covered();

// A file in memory, with a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : fd_(::memfd_create("fuzz", 0)) {
    if (fd_ < 0 || ::write(fd_, content.data(), content.size()) != ssize_t(content.size())) std::abort();
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// Small numbers off the front of the input, for what chooses.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : rest_(bytes) {}
  unsigned below(unsigned count) {
    if (rest_.empty()) return 0;
    const unsigned value = std::uint8_t(rest_[0]) % count;
    rest_.remove_prefix(1);
    return value;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace millrace::fuzz
