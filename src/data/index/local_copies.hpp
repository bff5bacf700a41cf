// Which shards this rank reads from a copy at the moment, and where that is. One thread decides (the Stager's); any may
// ask, and any may give a copy up. Private to the data room.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// Of data.cache = where, on this node.
std::string cache_folder(const std::string& where);

class LocalCopies {
 public:
  LocalCopies(const ShardList& shards, std::string folder);
  ~LocalCopies();

  // Of a source, by its absolute path: the same for every run.
  std::string path_in_folder(std::size_t shard) const;
  const std::string& folder() const { return folder_; }

  bool used(std::size_t shard) const { return state_[shard].load(std::memory_order_acquire) == in_use; }
  bool was_used(std::size_t shard) const {
    return state_[shard].load(std::memory_order_acquire) != at_source;
  }                                           // or is
  std::string path(std::size_t shard) const;  // of a copy that is used
  void use(std::size_t shard);                // its file is whole. nothing, once it was left
  void keep_open(std::size_t shard, int fd);  // before use(): the copy may lose its name. Takes the fd
  bool abandon(std::size_t shard);  // back to the source, for good; true: this call did it. Told by the caller

 private:
  enum State : std::uint8_t { at_source, in_use, left };
  const ShardList shards_;
  const std::string folder_;
  std::vector<std::atomic<std::uint8_t>> state_;
  std::vector<std::atomic<int>> held_;
};

// The file to read a shard from now.
std::string path_to_read(const ShardIndex&, std::size_t shard);

}  // namespace millrace
