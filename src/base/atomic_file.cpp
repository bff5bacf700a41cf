#include "millrace/base/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace {

// A file that no other writer uses, beside the final one.
int create_aside(const std::filesystem::path& path, std::filesystem::path& aside) {
  for (int number = 0;; ++number) {
    aside = path.parent_path() / fmt::format(".{}.{}-{}.tmp", path.filename().string(), ::getpid(), number);
    const int fd = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    constexpr int most = 100;
    if (fd >= 0 || errno != EEXIST || number == most) return fd;
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  require_replaceable(path_);
  fd_ = create_aside(path_, aside_);
  if (fd_ < 0) fail(Exit::data, "cannot create {} ({})", path_.string(), std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void AtomicFile::fail_writing(int error) const {
  fail(Exit::data, "cannot write {} ({})", path_.string(), std::strerror(error));
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(fd_, static_cast<const char*>(data) + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_writing(errno);
    done += std::size_t(n);
  }
}

void AtomicFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::pwrite(fd_, static_cast<const char*>(data) + done, bytes - done, off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_writing(errno);
    done += std::size_t(n);
  }
}

void AtomicFile::finish() {
  int error = ::fsync(fd_) != 0 ? errno : 0;
  if (::close(std::exchange(fd_, -1)) != 0 && error == 0) error = errno;  // NFS reports failed writes here
  if (error != 0) fail_writing(error);
  rename_durably(aside_, path_);
  aside_.clear();
}

}  // namespace millrace
