// A file mapped into memory, for copies out of it. Private to the data room.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// Used by several workers at once.
class MappedFile {
 public:
  ~MappedFile();
  bool mapped() const { return ready_.load(std::memory_order_acquire); }
  void map(int fd, const Shard&, std::uint64_t needed);  // bytes; Error(data) names the file
  // The same place shows the file that is open now; copies by others go on meanwhile.
  void remap(int fd, const Shard&);
  bool copy(std::uint64_t offset, char* to, std::size_t bytes);  // false: not all of it is to be had

 private:
  const char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::atomic<bool>> blocks_;  // that were read ahead
  std::atomic<bool> ready_{false};
  std::mutex mapping_;
};

// The rest of a page past the end of a file reads as zeros, without a signal: so the end is looked up after copying.
// Samples of row_bytes each, the first of which is `id`.
void check_end(int fd, const Shard&, std::uint64_t offset, std::size_t bytes, std::int64_t id, std::size_t row_bytes);

}  // namespace millrace
