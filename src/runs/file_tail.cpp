#include "millrace/runs/file_tail.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "millrace/base/error.hpp"

namespace millrace {

FileTail::FileTail(std::string path, std::int64_t initial_bytes)
    : path_(std::move(path)), most_at_first_(initial_bytes) {}

FileTail::Lines FileTail::read() {
  Lines out;
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE)
      fail(Exit::data, "cannot open ", path_, " (", std::strerror(errno), ")");
    out.anew = seen_, seen_ = false;
    return out;
  }
  struct stat now {};
  std::string text;
  bool broken = ::fstat(file, &now) != 0;
  if (!broken) {
    const bool other = !seen_ || now.st_dev != device_ || now.st_ino != inode_ || now.st_size < offset_;
    out.anew = seen_ && other;
    const bool in_middle = other && now.st_size > most_at_first_;  // of a line
    if (other) offset_ = in_middle ? now.st_size - most_at_first_ : 0;
    seen_ = true, device_ = now.st_dev, inode_ = now.st_ino;
    text.resize(std::size_t(now.st_size - offset_));
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::pread(file, text.data() + done, text.size() - done, offset_ + std::int64_t(done));
      if (n < 0 && errno == EINTR) continue;
      broken = n < 0;
      if (n <= 0) break;  // 0: cut in this moment
      done += std::size_t(n);
    }
    text.resize(done);
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
      if (begin > 0 || !in_middle) out.lines.push_back(text.substr(begin, end - begin));
    offset_ += std::int64_t(begin);
    out.modified = double(now.st_mtim.tv_sec) + 1e-9 * double(now.st_mtim.tv_nsec);
  }
  const int why = errno;
  ::close(file);
  if (broken) fail(Exit::data, "cannot read ", path_, " (", std::strerror(why), ")");
  return out;
}

}  // namespace millrace
