#include "millrace/runs/file_tail.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace {

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

FileTail::FileTail(std::string path, std::int64_t initial_bytes)
    : path_(std::move(path)), initial_bytes_(initial_bytes) {}

// The bytes from offset_ to `end`, or fewer when the file is truncated at this moment.
std::string FileTail::read_from(int file, std::int64_t end) {
  std::string text(std::size_t(end - offset_), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::pread(file, text.data() + done, text.size() - done, offset_ + std::int64_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Exit::data, "cannot read {} ({})", path_, std::strerror(errno));
    if (n == 0) break;
    done += std::size_t(n);
  }
  text.resize(done);
  return text;
}

FileTail::Lines FileTail::read() {
  Lines out;
  require_regular_file(path_);
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0) {
    if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE)
      fail(Exit::data, "cannot open {} ({})", path_, std::strerror(errno));
    out.restarted = seen_;
    seen_ = false;
    return out;
  }
  struct stat now {};
  if (::fstat(file.number, &now) != 0) fail(Exit::data, "cannot read {} ({})", path_, std::strerror(errno));
  const bool other = !seen_ || now.st_dev != device_ || now.st_ino != inode_ || now.st_size < offset_;
  out.restarted = seen_ && other;
  const bool inside_a_line = other && now.st_size > initial_bytes_;
  if (other) offset_ = inside_a_line ? now.st_size - initial_bytes_ : 0;
  seen_ = true;
  device_ = now.st_dev;
  inode_ = now.st_ino;
  const std::string text = read_from(file.number, now.st_size);
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    if (begin > 0 || !inside_a_line) out.lines.push_back(text.substr(begin, end - begin));
  offset_ += std::int64_t(begin);
  out.modified = double(now.st_mtim.tv_sec) + 1e-9 * double(now.st_mtim.tv_nsec);
  return out;
}

}  // namespace millrace
