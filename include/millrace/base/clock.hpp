// The clocks of the program's measurements, in seconds.
#pragma once
#include <time.h>

#include <chrono>

namespace millrace {

// Seconds of std::chrono::steady_clock. Only differences between values of the same process are meaningful.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// CPU time of the calling thread alone.
inline double thread_cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

}  // namespace millrace
