#include "millrace/data/decode/chunk_cache.hpp"

namespace millrace {
namespace {

constexpr std::size_t max_pooled_buffers = 8;

}  // namespace

std::unique_ptr<io::ByteBuffer> ChunkCache::BufferPool::take() {
  const std::lock_guard lock(mutex_);
  if (all_.empty()) return std::make_unique<io::ByteBuffer>();
  auto out = std::move(all_.back());
  all_.pop_back();
  return out;
}

void ChunkCache::BufferPool::give(std::unique_ptr<io::ByteBuffer> bytes) noexcept {
  const std::lock_guard lock(mutex_);
  if (all_.capacity() < max_pooled_buffers) try {
      all_.reserve(max_pooled_buffers);
    } catch (const std::bad_alloc&) {
      return;
    }
  if (all_.size() < max_pooled_buffers) all_.push_back(std::move(bytes));
}

ChunkCache::Chunk ChunkCache::get(std::uint64_t key, bool wait, const std::function<void(io::ByteBuffer&)>& make) {
  std::unique_lock lock(mutex_);
  for (auto found = places_.find(key); found != places_.end(); found = places_.find(key)) {
    Entry& entry = *found->second;
    if (entry.ready) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entry.bytes;
    }
    if (!wait) return nullptr;
    chunk_ready_.wait(lock);
  }
  const auto entry = entries_.insert(entries_.begin(), {key, nullptr, false});
  places_[key] = entry;
  lock.unlock();
  std::shared_ptr<io::ByteBuffer> bytes;
  try {
    bytes = {buffer_pool_->take().release(),
             [pool = buffer_pool_](io::ByteBuffer* done) { pool->give(std::unique_ptr<io::ByteBuffer>(done)); }};
    make(*bytes);
  } catch (...) {
    lock.lock();
    places_.erase(key);
    entries_.erase(entry);
    chunk_ready_.notify_all();
    throw;
  }
  ++decoded_count_;
  lock.lock();
  entry->bytes = bytes;
  entry->ready = true;
  cached_bytes_ += bytes->size();
  evict(*entry);
  chunk_ready_.notify_all();
  return bytes;
}

// Never evicts `keep`, the newest entry: other threads may be waiting for it.
void ChunkCache::evict(const Entry& keep) {
  for (auto at = entries_.end(); cached_bytes_ > budget_ && at != entries_.begin();) {
    --at;
    if (!at->ready || &*at == &keep) continue;
    cached_bytes_ -= at->bytes->size();
    places_.erase(at->key);
    at = entries_.erase(at);
  }
}

}  // namespace millrace
