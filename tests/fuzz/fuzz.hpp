// Shared by all fuzzers. Any bytes are an input: the code under test either works or throws an Error with the code
// `data` or `config`. Everything else is a finding: a crash, another exception, a broken invariant, too much memory, or
// an endless loop.
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
    if (e.code() == Exit::data || e.code() == Exit::config) return;
    std::fprintf(stderr, "%s\n", e.what());
    std::abort();
  }
}

// The counters of libFuzzer for the code that this process executed (covered.cpp).
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

// Takes small numbers from the front of the input, by which a fuzzer chooses what to test.
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
