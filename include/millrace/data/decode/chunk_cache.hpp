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
  using Chunk = std::shared_ptr<const io::ByteBuffer>;
  explicit ChunkCache(std::size_t budget_bytes) : budget_(budget_bytes) {}

  // The chunk of this key; absent ones are made by the calling thread, outside of the lock. While another makes it:
  // waits for it, or (wait false) null at once. What `make` throws goes to its caller; a waiting thread then tries by
  // itself.
  Chunk get(std::uint64_t key, bool wait, const std::function<void(io::ByteBuffer&)>& make);
  std::uint64_t decoded_count() const { return decoded_count_; }  // so far

 private:
  struct Entry {
    std::uint64_t key;
    std::shared_ptr<io::ByteBuffer> bytes;
    bool ready = false;
  };
  void evict(const Entry& but);

  const std::size_t budget_;
  std::mutex mutex_;
  std::condition_variable chunk_ready_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> places_;
  // Memory to use again: fresh pages cost as much as a fast codec. Whoever lets go of a chunk last gives it back.
  class BufferPool {
   public:
    std::unique_ptr<io::ByteBuffer> take();
    void give(std::unique_ptr<io::ByteBuffer>) noexcept;

   private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<io::ByteBuffer>> all_;
  };
  const std::shared_ptr<BufferPool> buffer_pool_ = std::make_shared<BufferPool>();
  std::size_t cached_bytes_ = 0;
  std::atomic<std::uint64_t> decoded_count_{0};
};

}  // namespace millrace
