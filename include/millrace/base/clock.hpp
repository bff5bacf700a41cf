// Seconds, by the clocks that the program measures with.
#pragma once
#include <time.h>

#include <chrono>

namespace millrace {

// Seconds of std::chrono::steady_clock: only differences mean something. They can be compared within a process.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// CPU time of the calling thread: the time of other threads and programs does not count.
inline double thread_cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

}  // namespace millrace
