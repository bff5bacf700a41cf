#include "millrace/base/files.hpp"

#include <fcntl.h>
#include <glob.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

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

enum class Flush { yes, no };
fs::path write_aside(const fs::path& path, std::string_view content, Flush flush) {
  const fs::path aside = path.string() + ".tmp";
  const Descriptor file{::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  if (file.fd < 0) fail_on(path, "create");
  while (!content.empty()) {
    const ssize_t done = ::write(file.fd, content.data(), content.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_on(path, "write");
    content.remove_prefix(std::size_t(done));
  }
  if (flush == Flush::yes && ::fsync(file.fd) != 0) fail_on(path, "flush");
  return aside;
}

void rename_over(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_on(to, "rename to");
}

}  // namespace

void fsync_file(const fs::path& path) { fsync_path(path, O_RDONLY); }
void fsync_folder(const fs::path& path) { fsync_path(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY); }

void rename_durably(const fs::path& from, const fs::path& to) {
  rename_over(from, to);
  fsync_folder(to.parent_path());
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  rename_durably(write_aside(path, content, Flush::yes), path);
}

void replace_file(const fs::path& path, std::string_view content) {
  rename_over(write_aside(path, content, Flush::no), path);
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_on(path, "open");
  std::ostringstream out;
  out << in.rdbuf();
  if (in.bad()) fail_on(path, "read");
  return out.str();
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
