// LocalCopies: which shards this rank reads from a node-local copy at the moment, and where the copies are. The thread
// of LocalCache starts the use of a copy; any thread may query or abandon one. Private to the data room.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// The folder for data.cache = where, on this node.
std::string cache_folder(const std::string& where);

class LocalCopies {
 public:
  LocalCopies(const ShardList& shards, std::string folder);
  ~LocalCopies();

  // Path of the copy of a shard. It depends on the absolute path of the source, so it is the same for every run.
  std::string path_in_folder(std::size_t shard) const;
  const std::string& folder() const { return folder_; }

  bool used(std::size_t shard) const { return state_[shard].load(std::memory_order_acquire) == in_use; }
  // Whether the copy is or was in use.
  bool was_used(std::size_t shard) const { return state_[shard].load(std::memory_order_acquire) != at_source; }
  std::string path(std::size_t shard) const;  // of a copy that is in use
  void use(std::size_t shard);                // the copy is complete; no effect after abandon()
  void keep_open(
      std::size_t shard,
      int fd);  // before use(); takes ownership of fd, so that the copy stays readable if its name is removed
  // Returns to the source for the rest of the run. True if this call did it; the caller then logs it.
  bool abandon(std::size_t shard);

 private:
  enum State : std::uint8_t { at_source, in_use, left };
  const ShardList shards_;
  const std::string folder_;
  std::vector<std::atomic<std::uint8_t>> state_;
  std::vector<std::atomic<int>> held_;
};

// The file to read a shard from: the source or the copy.
std::string path_to_read(const ShardIndex&, std::size_t shard);

}  // namespace millrace
