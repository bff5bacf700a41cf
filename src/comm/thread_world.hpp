#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace millrace {

// A barrier for the ranks of a thread world: wait() returns when all ranks have called it. abort_waits() makes all
// waits fail, now and later.
struct ThreadRendezvous {
  explicit ThreadRendezvous(int size);
  void wait();
  void abort_waits();
  const int size;
  const std::string host = "threads";
  std::mutex mutex;
  std::condition_variable all_here;
  std::vector<void*> slots;
  int arrived = 0;
  std::uint64_t generation = 0;
  bool broken = false;
};

}  // namespace millrace
