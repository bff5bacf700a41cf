// A file that is mapped into memory to copy samples from it. Internal to data/.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/shard_files.hpp"

namespace millrace {

// Thread-safe.
class MappedFile {
 public:
  ~MappedFile();
  bool mapped() const { return ready_.load(std::memory_order_acquire); }
  // Maps the first `needed` bytes, unless that was done before. Error(data) names the file.
  void map(int fd, const Shard&, std::uint64_t needed);
  // Maps another file at the same address. Other threads may copy meanwhile. Throws ReadError.
  void remap(int fd, const Shard&);
  bool copy(std::uint64_t offset, char* to, std::size_t bytes);  // false: a page cannot be read

 private:
  const char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::atomic<bool>> blocks_;  // true: the kernel was asked to read this block ahead
  std::atomic<bool> ready_{false};
  std::mutex mapping_;
};

// Fails, naming the first missing sample, if the file ends before this range does. Needed after copying: a mapping
// reads as zeros from the end of the file to the end of that page, without a signal.
void check_end(int fd, const Shard&, const SampleBytes&);

}  // namespace millrace
