// Tail: a file that grows, read as it grows: only what is new, whole lines, opened anew each time (which is when
// network file systems look again). The file may be cut, replaced or not be there yet.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

class FileTail {
 public:
  // Of a file that is longer when first seen, the last `most_at_first` bytes are read.
  explicit FileTail(std::string path, std::int64_t initial_bytes = 1 << 20);

  struct Lines {
    bool anew = false;  // the file is another, or was cut: what was read before is not in it
    std::vector<std::string> lines;
    double modified = -1;  // seconds since 1970; no such file: -1
  };
  Lines read();  // Error(data) when it is there and cannot be read

 private:
  const std::string path_;
  const std::int64_t most_at_first_;
  std::int64_t offset_ = 0;  // behind the last whole line that was read
  dev_t device_ = 0;
  ino_t inode_ = 0;
  bool seen_ = false;
};

}  // namespace millrace
