// Brings a set's files to its node, in a thread beside the training: each of the node's ranks copies its part, and
// reads from the copies of all of them. Private to the data room.
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
  // Collective. Makes the folder; copies nothing. Error(config) on every rank where one cannot write there.
  LocalCache(World&, const ShardIndex&, const LocalCacheOptions&);
  ~LocalCache();
  std::shared_ptr<LocalCopies> copies() const;
  // Begins to copy. reopen: the shard is read from another file from now on; called by one thread.
  void start(std::function<void(std::size_t shard)> reopen);
  std::string describe() const;
  LocalCacheStats stats() const;  // samples are the caller's to count

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Around a guarded engine made for this index, which has the stager's copies.
std::unique_ptr<Source> make_cached_source(std::unique_ptr<Source>, const ShardIndex&, std::unique_ptr<LocalCache>);

}  // namespace millrace
