// ChunkCache: decoded chunks, shared by all workers of a source. The rows of a batch are spread over the workers, so
// rows of one chunk are needed by several of them, but the chunk is decoded once. Evicts the least recently used
// chunks. Thread-safe. Private to the data room.
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

  // Returns the chunk of this key. If it is absent, the calling thread makes it with `make`, without holding the lock.
  // If another thread is making it, waits for that thread, or returns null if `wait` is false. An exception of `make`
  // is passed on to the caller; threads that wait for the chunk then make it themselves.
  Chunk get(std::uint64_t key, bool wait, const std::function<void(io::ByteBuffer&)>& make);
  std::uint64_t decoded_count() const { return decoded_count_; }  // chunks made so far

 private:
  struct Entry {
    std::uint64_t key;
    std::shared_ptr<io::ByteBuffer> bytes;
    bool ready = false;
  };
  void evict(const Entry& keep);

  const std::size_t budget_;
  std::mutex mutex_;
  std::condition_variable chunk_ready_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> places_;
  // Buffers for reuse, because touching fresh pages takes as long as a fast codec. The last owner of a chunk returns
  // its buffer.
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
