// What the headers of a set's files said the last time, so that the next start looks only at sizes and times: one file,
// beside the data or, where that cannot be written, in $XDG_CACHE_HOME/millrace. Private to the data room.
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
  // Reads what is there. What is damaged, of another version or of other options is not used; the first is warned of.
  ManifestCache(const DataOptions&, const std::string& first_path);

  struct CachedShard {
    Shard shard;
    const ShardIndex* metadata;  // what the file says besides its shard; the same for many files
  };
  // A file of the same path, size and time of writing.
  std::optional<CachedShard> find(const std::string& path, const FileStamp&) const;

  // As found or scanned, in the order of the set; what `one` says besides its shard is kept once. Returns that.
  const ShardIndex* add(const Shard&, const ShardIndex& one, const FileStamp&);
  void add(const CachedShard&, const FileStamp&);
  // Where it went; "" and a warning: nowhere. A file that was written to just now is left out: it may be written to
  // again without a change of its size and time.
  std::string save() const;

 private:
  bool load(const std::string& path);
  std::uint32_t number_of(const ShardIndex& metadata);

  std::string key_, adjacent_path_, fallback_path_;
  std::vector<std::unique_ptr<ShardIndex>> metadata_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // of facts, by their text
  ShardList old_, new_;
  std::vector<FileStamp> old_stamps_, new_stamps_;
  std::vector<std::uint32_t> old_metadata_, new_metadata_;
  std::unordered_map<std::string, std::size_t> old_at_;  // by path
};

}  // namespace millrace
