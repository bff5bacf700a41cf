#include "millrace/base/files.hpp"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_on(const fs::path& path, const char* doing) {
  fail(Exit::data, "cannot {} {} ({})", doing, path.string(), std::strerror(errno));
}

// A file descriptor that closes itself.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

void fsync_path(const fs::path& path, int flags) {
  const Descriptor file{::open(path.c_str(), flags | O_CLOEXEC)};
  if (file.fd < 0) fail_on(path, "open");
  if (::fsync(file.fd) != 0) fail_on(path, "flush");
}

bool is_null_device(const struct stat& s) { return S_ISCHR(s.st_mode) && s.st_rdev == ::makedev(1, 3); }

// Removes the unfinished file, and fails with the errno of the last call.
[[noreturn]] void fail_without(const fs::path& aside, const fs::path& path, const char* what) {
  const int error = errno;
  ::unlink(aside.c_str());
  errno = error;
  fail_on(path, what);
}

enum class Flush { yes, no };
fs::path write_aside(const fs::path& path, std::string_view content, Flush flush, const std::string& ending = ".tmp") {
  const fs::path aside = path.string() + ending;
  require_replaceable(path);
  require_replaceable(aside);
  const Descriptor file{::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666)};
  if (file.fd < 0) fail_on(path, "create");
  while (!content.empty()) {
    const ssize_t done = ::write(file.fd, content.data(), content.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_without(aside, path, "write");
    content.remove_prefix(std::size_t(done));
  }
  if (flush == Flush::yes && ::fsync(file.fd) != 0) fail_without(aside, path, "flush");
  return aside;
}

void put_in_place(const fs::path& aside, const fs::path& path) {
  if (::rename(aside.c_str(), path.c_str()) != 0) fail_without(aside, path, "rename to");
}

}  // namespace

void require_replaceable(const fs::path& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) == 0 && is_null_device(s))
    fail(Exit::data, "cannot replace {} (it is a device). name a file", path.string());
  require_regular_file(path);
}

void fsync_file(const fs::path& path) { fsync_path(path, O_RDONLY); }
void fsync_folder(const fs::path& path) { fsync_path(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY); }

void rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_on(to, "rename to");
  fsync_folder(to.parent_path());
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  put_in_place(write_aside(path, content, Flush::yes), path);
  fsync_folder(path.parent_path());
}

void replace_file(const fs::path& path, std::string_view content) {
  put_in_place(write_aside(path, content, Flush::no), path);
}

void write_shared_file(const fs::path& path, std::string_view content) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  put_in_place(
      write_aside(path, content, Flush::no, "." + std::string(host) + "." + std::to_string(::getpid()) + ".tmp"), path);
}

std::string read_file(const fs::path& path, std::uint64_t max_bytes) {
  require_regular_file(path);
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) fail_on(path, "open");
  std::string out;
  std::vector<char> block(1 << 16);
  for (;;) {
    const ssize_t n = ::read(file.fd, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_on(path, "read");
    if (n == 0) return out;
    out.append(block.data(), std::size_t(n));
    if (out.size() > max_bytes)
      fail(Exit::data, "{} is too large (more than {} bytes). name another file", path.string(), max_bytes);
  }
}

void require_regular_file(const fs::path& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0 || S_ISREG(s.st_mode) || is_null_device(s)) return;
  const char* kind = S_ISDIR(s.st_mode)    ? "folder"
                     : S_ISFIFO(s.st_mode) ? "named pipe"
                     : S_ISSOCK(s.st_mode) ? "socket"
                                           : "device";
  fail(Exit::data, "cannot open {} (it is a {}, not a file). name a regular file", path.string(), kind);
}

void require_own_file(const fs::path& path, std::string_view beginning) {
  require_regular_file(path);
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0 && errno == ENOENT) return;
  if (file.fd < 0) fail_on(path, "open");
  std::string found(beginning.size(), '\0');
  const ssize_t n = ::pread(file.fd, found.data(), found.size(), 0);
  if (n < 0) fail_on(path, "read");
  if (n > 0 && found != beginning)
    fail(Exit::data, "{} exists and was not written by millrace. name another file, or remove this one", path.string());
}

std::vector<std::string> expand_glob(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::uint32_t combined_crc32(std::uint32_t first, std::uint32_t second, std::size_t second_bytes) {
  return std::uint32_t(::crc32_combine(first, second, z_off_t(second_bytes)));
}

std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t seed) {
  return std::uint32_t(::crc32_z(seed, static_cast<const Bytef*>(data), bytes));
}

}  // namespace millrace
