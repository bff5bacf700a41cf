// Decoded chunks, one cache for all workers of a source: the rows of a batch are spread over the workers, and
// neighbours in one chunk shall decode it once. The least recently used go first. Private to the data room.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "millrace/io/chunks.hpp"

namespace millrace {

class ChunkCache {
 public:
  using Chunk = std::shared_ptr<const io::Bytes>;
  explicit ChunkCache(std::size_t budget_bytes) : budget_(budget_bytes) {}

  // The chunk of this key; absent ones are made by the calling thread, outside of the lock. While another makes it:
  // waits for it, or (wait false) null at once. What `make` throws goes to its caller; a waiting thread then tries by
  // itself.
  Chunk get(std::uint64_t key, bool wait, const std::function<void(io::Bytes&)>& make);
  std::uint64_t made() const { return made_count_; }  // so far

 private:
  struct Entry {
    std::uint64_t key;
    std::shared_ptr<io::Bytes> bytes;
    bool ready = false;
  };
  void evict(const Entry& but);

  const std::size_t budget_;
  std::mutex mutex_;
  std::condition_variable made_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> places_;
  // Memory to use again: fresh pages cost as much as a fast codec. Whoever lets go of a chunk last gives it back.
  class Spares {
   public:
    std::unique_ptr<io::Bytes> take();
    void give(std::unique_ptr<io::Bytes>) noexcept;

   private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<io::Bytes>> all_;
  };
  const std::shared_ptr<Spares> spares_ = std::make_shared<Spares>();
  std::size_t held_ = 0;
  std::atomic<std::uint64_t> made_count_{0};
};

}  // namespace millrace
