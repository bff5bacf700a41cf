// FileTail: follows a file that grows, as `tail -F` does. Each read() returns the lines that are new. It opens the file
// every time, because network file systems look for changes only then. The file may be truncated, replaced or missing.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

class FileTail {
 public:
  // The first read() of a file longer than `initial_bytes` returns only whole lines from its last `initial_bytes`.
  explicit FileTail(std::string path, std::int64_t initial_bytes = 1 << 20);

  struct Lines {
    bool restarted = false;          // the file was replaced, truncated or removed: forget the lines read before
    std::vector<std::string> lines;  // complete lines, without the newline
    double modified = -1;            // time of the last write, in seconds since 1970; -1: no such file
  };
  Lines read();  // Error(data) when the file exists and cannot be read

 private:
  std::string read_from(int file, std::int64_t end);
  const std::string path_;
  const std::int64_t initial_bytes_;
  std::int64_t offset_ = 0;  // end of the last complete line that was read
  dev_t device_ = 0;
  ino_t inode_ = 0;
  bool seen_ = false;
};

}  // namespace millrace
