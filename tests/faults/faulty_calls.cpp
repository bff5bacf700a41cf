// Makes system calls fail or take long. It is loaded with LD_PRELOAD and reads its faults from MILLRACE_TEST_CALLS:
// "call,path,error,after,times,seconds;...".
//
// call: open, read, write, fsync, rename, fallocate or clock. path: a part of the file's path. error: an errno; 0 means
// that the call is slow only. The first `after` calls succeed, the next `times` calls meet the fault. seconds: extra
// duration of the call. clock: after `after` readings, the wall clock differs from the true one by `seconds`.
// MILLRACE_TEST_CALLS_RANK limits the faults to one rank.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct CallFault {
  std::string call, path;
  int error = 0;
  long after = 0, times = 0;
  double seconds = 0;
};

std::vector<CallFault> read_faults() {
  std::vector<CallFault> all;
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* const only = std::getenv("MILLRACE_TEST_CALLS_RANK");
  if (only && std::string(rank ? rank : "0") != only) return all;
  const char* const text = std::getenv("MILLRACE_TEST_CALLS");
  std::istringstream in(text ? text : "");
  for (std::string one; std::getline(in, one, ';');) {
    CallFault f;
    char comma = 0;
    std::istringstream fields(one);
    std::getline(fields, f.call, ',');
    std::getline(fields, f.path, ',');
    if (!(fields >> f.error >> comma >> f.after >> comma >> f.times >> comma >> f.seconds)) std::abort();
    all.push_back(f);
  }
  return all;
}

// Function-local and never destroyed: calls come before the constructors of this library and after its destructors.
std::vector<CallFault>& faults() {
  static auto* const all = new std::vector<CallFault>(read_faults());
  return *all;
}

std::mutex mutex;

// Returns the errno that the call must return, or 0. Sleeps if the fault says so.
int meet(const char* call, const char* path) {
  double seconds = 0;
  int error = 0;
  {
    const std::lock_guard lock(mutex);
    for (CallFault& f : faults()) {
      if (f.call != call || !path || !std::strstr(path, f.path.c_str())) continue;
      if (f.after-- > 0 || f.times <= 0) continue;
      --f.times;
      error = f.error;
      seconds = f.seconds;
      break;
    }
  }
  timespec t{time_t(seconds), long((seconds - double(time_t(seconds))) * 1e9)};
  while (seconds > 0 && ::nanosleep(&t, &t) != 0) continue;
  return error;
}

int meet(const char* call, int fd) {
  if (faults().empty()) return 0;
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link, path, sizeof path - 1);
  if (n <= 0) return 0;
  path[n] = 0;
  return meet(call, path);
}

double clock_shift() {
  const std::lock_guard lock(mutex);
  double shift = 0;
  for (CallFault& f : faults())
    if (f.call == "clock" && f.after-- <= 0) shift += f.seconds;
  return shift;
}

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : mode_t(0); }

}  // namespace

// FAIL_IF(fault) returns -1 with errno from a function that meets a fault.
#define FAIL_IF(...) \
  if (const int error = meet(__VA_ARGS__)) return errno = error, -1

#define OPEN(name)                                                     \
  int name(const char* path, int flags, ...) {                         \
    FAIL_IF("open", path);                                             \
    va_list rest;                                                      \
    va_start(rest, flags);                                             \
    const mode_t mode = mode_of(flags, rest);                          \
    va_end(rest);                                                      \
    static auto* const call = real<int(const char*, int, ...)>(#name); \
    return call(path, flags, mode);                                    \
  }
// A call with a file descriptor first: TRANSFER(kind, name, parameters after fd, arguments after fd)
#define TRANSFER(result, kind, name, parameters, ...)         \
  result name parameters {                                    \
    FAIL_IF(kind, fd);                                        \
    static auto* const call = real<result parameters>(#name); \
    return call(__VA_ARGS__);                                 \
  }

extern "C" {
OPEN(open)
OPEN(open64)
TRANSFER(ssize_t, "read", read, (int fd, void* to, size_t bytes), fd, to, bytes)
TRANSFER(ssize_t, "read", pread, (int fd, void* to, size_t bytes, off_t at), fd, to, bytes, at)
TRANSFER(ssize_t, "read", pread64, (int fd, void* to, size_t bytes, off64_t at), fd, to, bytes, at)
TRANSFER(ssize_t, "read", preadv, (int fd, const iovec* to, int count, off_t at), fd, to, count, at)
TRANSFER(ssize_t, "write", write, (int fd, const void* from, size_t bytes), fd, from, bytes)
TRANSFER(ssize_t, "write", pwrite, (int fd, const void* from, size_t bytes, off_t at), fd, from, bytes, at)
TRANSFER(ssize_t, "write", pwrite64, (int fd, const void* from, size_t bytes, off64_t at), fd, from, bytes, at)
TRANSFER(ssize_t, "write", pwritev, (int fd, const iovec* from, int count, off_t at), fd, from, count, at)
TRANSFER(int, "fsync", fsync, (int fd), fd)
TRANSFER(int, "fsync", fdatasync, (int fd), fd)
TRANSFER(int, "fallocate", fallocate, (int fd, int mode, off_t at, off_t bytes), fd, mode, at, bytes)
TRANSFER(int, "fallocate", fallocate64, (int fd, int mode, off64_t at, off64_t bytes), fd, mode, at, bytes)

int posix_fallocate(int fd, off_t at, off_t bytes) {
  if (const int error = meet("fallocate", fd)) return error;
  static auto* const call = real<int(int, off_t, off_t)>("posix_fallocate");
  return call(fd, at, bytes);
}
int rename(const char* from, const char* to) noexcept {
  FAIL_IF("rename", to);
  static auto* const call = real<int(const char*, const char*)>("rename");
  return call(from, to);
}
int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static auto* const call = real<int(clockid_t, timespec*)>("clock_gettime");
  const int result = call(clock, now);
  if (clock == CLOCK_REALTIME && result == 0 && !faults().empty()) now->tv_sec += time_t(clock_shift());
  return result;
}
time_t time(time_t* to) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(timeval* now, void*) noexcept {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  now->tv_sec = t.tv_sec;
  now->tv_usec = t.tv_nsec / 1000;
  return 0;
}
}
