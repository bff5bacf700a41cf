// ManifestCache: the metadata of all files of a data set in one file, so that the next start only compares sizes and
// modification times. The cache is stored beside the data, or in $XDG_CACHE_HOME/millrace if that folder cannot be
// written. Private to the data room.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

struct FileStamp {
  std::uint64_t bytes = 0;
  std::int64_t mtime = 0;  // nanoseconds
};

class ManifestCache {
 public:
  // Reads an existing cache. A cache of another version or of other options is ignored; for a damaged one, a warning is
  // logged.
  ManifestCache(const DataOptions&, const std::string& first_path);

  struct CachedShard {
    Shard shard;
    const ShardIndex* metadata;  // the file's index without its shard; files with equal metadata share one
  };
  // The cached file of this path, size and modification time.
  std::optional<CachedShard> find(const std::string& path, const FileStamp&) const;

  // Adds the next file of the data set: one that was scanned (`one` is its index) or one that was found in the cache.
  void add(const Shard&, const ShardIndex& one, const FileStamp&);
  void add(const CachedShard&, const FileStamp&);
  // Writes the cache and returns its path; "" and a warning if that is impossible. Files that were modified a moment
  // ago are not cached: they may change again without a change of their size and time.
  std::string save() const;

 private:
  bool load(const std::string& path);
  std::uint32_t number_of(const ShardIndex& metadata);

  std::string key_, adjacent_path_, fallback_path_;
  std::vector<std::unique_ptr<ShardIndex>> metadata_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // of metadata_, by their serialized form
  ShardList old_, new_;
  std::vector<FileStamp> old_stamps_, new_stamps_;
  std::vector<std::uint32_t> old_metadata_, new_metadata_;
  std::unordered_map<std::string, std::size_t> old_at_;  // by path
};

}  // namespace millrace
