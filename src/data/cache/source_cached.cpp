// A source around an engine with retries, whose index knows the local copies. It starts the cache with the first read
// and counts the samples that come from copies.
#include <fmt/core.h>

#include "data/cache/local_cache.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {
namespace {

class CachedSource : public Source {
 public:
  CachedSource(std::unique_ptr<Source> inner, const ShardIndex& index, std::unique_ptr<LocalCache> cache)
      : index_(index), inner_(std::move(inner)), local_cache_(std::move(cache)) {}

  void read(std::span<const std::int64_t> ids, void* x, void* y) override { read_epoch(0, ids, x, y); }
  void read_epoch(std::int64_t epoch, std::span<const std::int64_t> ids, void* x, void* y) override {
    start();
    count(ids);
    inner_->read_epoch(epoch, ids, x, y);
  }
  std::unique_ptr<ReadQueue> make_read_queue(std::span<char> slots) override {
    start();
    return std::make_unique<CountingReadQueue>(*this, inner_->make_read_queue(slots));
  }
  std::string describe() const override { return fmt::format("{}; {}", inner_->describe(), local_cache_->describe()); }
  DecodeStats decoded() const override { return inner_->decoded(); }
  int max_workers() const override { return inner_->max_workers(); }
  FaultStats faults() const override { return inner_->faults(); }
  LocalCacheStats staging() const override {
    LocalCacheStats out = local_cache_->stats();
    out.samples = samples_;
    out.samples_from_copies = from_copies_;
    return out;
  }

 private:
  class CountingReadQueue : public ReadQueue {
   public:
    CountingReadQueue(CachedSource& source, std::unique_ptr<ReadQueue> inner)
        : source_(source), inner_(std::move(inner)) {}
    void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
      source_.count(ids);
      inner_->begin(ids, x, y);
    }
    void epoch(std::int64_t e) override { inner_->epoch(e); }
    bool can_submit() const override { return inner_->can_submit(); }
    void finish() override { inner_->finish(); }
    std::int64_t skipped() const override { return inner_->skipped(); }
    void stop() override { inner_->stop(); }

   private:
    CachedSource& source_;
    std::unique_ptr<ReadQueue> inner_;
  };

  void start() {
    local_cache_->start([this](std::size_t shard) { inner_->reopen(shard); });
  }

  void count(std::span<const std::int64_t> ids) {
    std::uint64_t from_copies = 0;
    for (const std::int64_t id : ids) from_copies += index_.copies->used(shard_of(index_, id));
    samples_.fetch_add(ids.size(), std::memory_order_relaxed);
    from_copies_.fetch_add(from_copies, std::memory_order_relaxed);
  }

  const ShardIndex index_;
  std::atomic<std::uint64_t> samples_{0}, from_copies_{0};
  std::unique_ptr<Source> inner_;
  std::unique_ptr<LocalCache> local_cache_;  // last member: its thread calls the engine until it is destroyed
};

}  // namespace

std::unique_ptr<Source> make_cached_source(std::unique_ptr<Source> inner, const ShardIndex& index,
                                           std::unique_ptr<LocalCache> cache) {
  return std::make_unique<CachedSource>(std::move(inner), index, std::move(cache));
}

}  // namespace millrace
