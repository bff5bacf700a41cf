// The node-local cache: copies the files of a data set to this node, in a background thread during training. Each
// rank of the node copies a part of the files, and reads from the copies of all ranks. Internal to data/.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "data/index/local_copies.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/data/index/local_cache_options.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

class LocalCache {
 public:
  // Collective. Creates the folder and copies nothing yet. Error(config) on every rank if one cannot write there.
  LocalCache(World&, const ShardIndex&, const LocalCacheOptions&);
  ~LocalCache();
  std::shared_ptr<LocalCopies> copies() const;
  // Starts to copy; later calls do nothing. reopen: called by the thread of this object when a shard's copy is
  // complete, so that the engine opens the copy.
  void start(std::function<void(std::size_t shard)> reopen);
  std::string describe() const;
  LocalCacheStats stats() const;  // except the counts of samples, which CachedSource fills in

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads through `inner`, an engine with retries that was made for this index. index.copies are those of the cache. The
// cache starts with the first read.
std::unique_ptr<Source> make_cached_source(std::unique_ptr<Source> inner, const ShardIndex&,
                                           std::unique_ptr<LocalCache>);

}  // namespace millrace
