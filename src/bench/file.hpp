// The file that benchmarks of the loader read. Internal to bench/.
#pragma once
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/bench/loader.hpp"

namespace millrace {

// Contains the rows of x, then the labels. The destructor removes it.
class BenchFile {
 public:
  explicit BenchFile(const LoaderBenchOptions& o)
      : rows_(o.rows),
        sample_bytes_(o.sample_bytes),
        path_((o.folder.empty() ? std::filesystem::temp_directory_path() : o.folder) /
              fmt::format("millrace-bench-{}.bin", ::getpid())) {
    std::ofstream out(path_, std::ios::binary);
    std::vector<std::uint32_t> block(1 << 18);
    const std::int64_t total = o.rows * (o.sample_bytes + std::int64_t(sizeof(std::int32_t)));
    for (std::int64_t done = 0; done < total && out;) {
      for (std::size_t i = 0; i < block.size(); ++i) block[i] = std::uint32_t(i * 2654435761u) >> 24;
      const std::int64_t n = std::min<std::int64_t>(total - done, std::int64_t(block.size() * sizeof block[0]));
      out.write(reinterpret_cast<const char*>(block.data()), n);
      done += n;
    }
    out.close();
    if (!out) fail(Exit::data, "cannot write {} (full?). name another folder", path_.string());
  }
  ~BenchFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  std::string path() const { return path_.string(); }
  ShardIndex index() const {
    ShardIndex index;
    index.rows = rows_;
    index.sample = {sample_bytes_};
    index.y.dtype = DType::i32;
    Shard shard;
    shard.path = path();
    shard.rows = rows_;
    shard.y_offset = std::uint64_t(rows_ * sample_bytes_);
    index.shards = {shard};
    return index;
  }

  // Writes the file to the disk and drops it from the page cache, as far as the kernel follows this advice.
  void drop() const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(Exit::data, "cannot open {}", path_.string());
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }

 private:
  const std::int64_t rows_, sample_bytes_;
  std::filesystem::path path_;
};

}  // namespace millrace
