// The number of threads of the loops of a test.
#pragma once
#include "cpu/common/threads.hpp"

namespace millrace::test {

// Restores the number before.
struct ThreadCount {
  int before = cpu::thread_count();
  explicit ThreadCount(int count) { cpu::set_thread_count(count); }
  ThreadCount(const ThreadCount&) = delete;
  ~ThreadCount() { cpu::set_thread_count(before); }
};

}  // namespace millrace::test
