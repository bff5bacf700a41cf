#include "support/faulty_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <sstream>

namespace millrace::test {
namespace {

std::mutex mutex;
std::vector<Fault> faults;
std::atomic<bool> any{false};

std::string path_of(int fd) {
  char path[4096];
  const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return n > 0 ? std::string(path, std::size_t(n)) : "";
}

bool is_for(const Fault& f, const std::string& path) { return path.find(f.file) != std::string::npos; }

// Returns the fault that affects a read of these bytes, or an empty Fault (error and seconds are 0). Decrements `times`
// of the fault.
Fault meet(const std::string& path, std::uint64_t from, std::uint64_t to, bool opening, bool mapping = false) {
  const std::lock_guard lock(mutex);
  for (Fault& f : faults)
    if (f.opening == opening && (mapping || f.error != ENODEV) && is_for(f, path) && from < f.to && to > f.from &&
        f.times > 0) {
      if (f.error != ESTALE) --f.times;
      return f;
    }
  return {};
}

void opened(const std::string& path) {
  const std::lock_guard lock(mutex);
  for (Fault& f : faults)
    if (f.error == ESTALE && is_for(f, path) && f.seconds > 0) f.times = 0;
}

// The file has returned ESTALE. From now on, opening it again ends the error.
void became_stale(const std::string& path) {
  const std::lock_guard lock(mutex);
  for (Fault& f : faults)
    if (f.error == ESTALE && is_for(f, path)) f.seconds = 1e-9;
}

void sleep_for(double seconds) {
  while (seconds < 0) ::pause();
  timespec t{time_t(seconds), long((seconds - double(time_t(seconds))) * 1e9)};
  while (::nanosleep(&t, &t) != 0) continue;
}

ssize_t read_at(int fd, void* to, std::size_t bytes, off_t offset) {
  if (any) {
    const std::string path = path_of(fd);
    const Fault f = meet(path, std::uint64_t(offset), std::uint64_t(offset) + bytes, false);
    if (f.seconds != 0) sleep_for(f.seconds);
    if (f.error == ESTALE) became_stale(path);
    if (f.error) return errno = f.error, -1;
  }
  return ::syscall(SYS_pread64, fd, to, bytes, offset);
}

// Writes to a file whose path contains MILLRACE_TEST_STUCK_WRITES never return.
ssize_t write_at(int fd, const void* from, std::size_t bytes, off_t offset) {
  static const char* const stuck = std::getenv("MILLRACE_TEST_STUCK_WRITES");
  if (stuck && path_of(fd).find(stuck) != std::string::npos) sleep_for(-1);
  return ::syscall(SYS_pwrite64, fd, from, bytes, offset);
}

int open_at(const char* path, int flags, mode_t mode) {
  if (any) {
    opened(path);
    if (const Fault f = meet(path, 0, 1, true); f.error) return errno = f.error, -1;
  }
  return int(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

void* map(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  void* const there = reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, fd, offset));
  if (!any || fd < 0 || there == MAP_FAILED) return there;
  const std::string path = path_of(fd);
  const Fault f = meet(path, std::uint64_t(offset), std::uint64_t(offset) + bytes, false, true);
  if (f.error == 0) return there;
  if (f.error == ENODEV) return ::syscall(SYS_munmap, there, bytes), errno = ENODEV, MAP_FAILED;
  if (f.error == ESTALE) became_stale(path);
  constexpr std::uint64_t page = 4096;
  const std::uint64_t from = f.from / page * page, to = std::min<std::uint64_t>((f.to + page - 1) / page * page, bytes);
  const int empty =
      int(::syscall(SYS_memfd_create, "empty", 0));  // reading a page past the end of a file raises SIGBUS
  ::syscall(SYS_mmap, static_cast<char*>(there) + from, to - from, PROT_READ, MAP_SHARED | MAP_FIXED, empty, 0);
  ::close(empty);
  return there;
}

[[maybe_unused]] const bool read_from_environment = [] {
  const char* text = std::getenv("MILLRACE_TEST_FAULTS");
  std::vector<Fault> all;
  std::istringstream in(text ? text : "");
  for (std::string one; std::getline(in, one, ';');) {
    Fault f;
    std::istringstream fields(one);
    char comma = 0;
    std::getline(fields, f.file, ',');
    if (fields >> f.from >> comma >> f.to >> comma >> f.error >> comma >> f.times >> comma >> f.seconds)
      all.push_back(f);
    else
      std::abort();
  }
  set_faults(all);
  return true;
}();

}  // namespace

void set_faults(std::vector<Fault> all) {
  const std::lock_guard lock(mutex);
  any = !all.empty();
  faults = std::move(all);
}

}  // namespace millrace::test

extern "C" {
ssize_t pread(int fd, void* to, size_t bytes, off_t offset) { return millrace::test::read_at(fd, to, bytes, offset); }
ssize_t pread64(int fd, void* to, size_t bytes, off64_t offset) {
  return millrace::test::read_at(fd, to, bytes, offset);
}
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  return millrace::test::write_at(fd, from, bytes, offset);
}
ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t offset) {
  return millrace::test::write_at(fd, from, bytes, offset);
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : mode_t(0);
  va_end(rest);
  return millrace::test::open_at(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : mode_t(0);
  va_end(rest);
  return millrace::test::open_at(path, flags, mode);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  return millrace::test::map(at, bytes, protection, flags, fd, offset);
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int fd, off64_t offset) noexcept {
  return millrace::test::map(at, bytes, protection, flags, fd, offset);
}
}
