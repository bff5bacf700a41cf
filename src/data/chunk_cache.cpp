#include "chunk_cache.hpp"

namespace millrace {
namespace {

constexpr std::size_t spares = 8;

}  // namespace

ChunkCache::Chunk ChunkCache::get(std::uint64_t key, bool wait, const std::function<void(io::Bytes&)>& make) {
  std::unique_lock lock(mutex_);
  for (auto found = places_.find(key); found != places_.end(); found = places_.find(key)) {
    Entry& entry = *found->second;
    if (entry.ready) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entry.bytes;
    }
    if (!wait) return nullptr;
    made_.wait(lock);
  }
  const auto entry = entries_.insert(entries_.begin(), {key, nullptr, false});
  places_[key] = entry;
  std::shared_ptr<io::Bytes> bytes;
  if (!spare_.empty()) bytes = std::move(spare_.back()), spare_.pop_back();
  lock.unlock();
  try {
    if (!bytes) bytes = std::make_shared<io::Bytes>();
    make(*bytes);
  } catch (...) {
    lock.lock();
    places_.erase(key);
    entries_.erase(entry);
    made_.notify_all();
    throw;
  }
  ++made_count_;
  lock.lock();
  entry->bytes = bytes, entry->ready = true;
  held_ += bytes->size();
  evict(*entry);
  made_.notify_all();
  return bytes;
}

// The newest stays, whatever its size: others may be waiting for it.
void ChunkCache::evict(const Entry& but) {
  for (auto at = entries_.end(); held_ > budget_ && at != entries_.begin();) {
    --at;
    if (!at->ready || &*at == &but) continue;
    held_ -= at->bytes->size();
    if (at->bytes.use_count() == 1 && spare_.size() < spares) spare_.push_back(std::move(at->bytes));
    places_.erase(at->key);
    at = entries_.erase(at);
  }
}

}  // namespace millrace
