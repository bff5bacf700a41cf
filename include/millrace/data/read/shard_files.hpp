// What every engine of own reads shares: open files, runs of neighbouring samples, reads in full, y. Private to the
// data room.
#pragma once
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "millrace/data/decode/chunked_reader.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {

// A file for one read, or several: as long as this is there, so is its number. Either ShardFiles outlives it, or it is
// one of those that close the file.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  FileDescriptor(int fd, bool kept);  // kept: by somebody else, who closes it
  FileDescriptor(int fd, std::shared_ptr<const void> closes) : fd_(fd), closes_(std::move(closes)) {}
  operator int() const { return fd_; }

 private:
  int fd_ = -1;
  std::shared_ptr<const void> closes_;
};

FileDescriptor open_file(const std::string& path);  // to be read; Error(data)

// Opened when first asked for. Called by several workers at once. Of more files than a process may have open, those
// used last are kept.
class ShardFiles {
 public:
  // flags: of open(2), besides O_RDONLY. share: the part of the process's open files that these may take.
  explicit ShardFiles(const ShardIndex&, int flags = 0, std::size_t share = 1);
  ~ShardFiles();
  FileDescriptor open(std::size_t shard);  // Error(data) names the file
  // Those who hold its Descriptor read the file that is there now. Error(data) names it.
  void reopen(std::size_t shard);

 private:
  struct Recent {
    FileDescriptor file;
    std::list<std::size_t>::iterator used;
  };
  int open_file(std::size_t shard) const;
  void check_for_writes(std::size_t shard, int fd) const;
  void report_write(const Shard&, std::int64_t written) const;
  void replace(int there, std::size_t shard) const;
  FileDescriptor open_recent(std::size_t shard);

  const ShardIndex& index_;
  const int flags_;
  const std::size_t max_open_files_;
  std::vector<std::atomic<int>> fds_;                // by shard; empty: there are more than may be open
  mutable std::atomic<std::int64_t> next_check_{0};  // at a file that is kept open; milliseconds
  mutable std::mutex mutex_;                         // of what follows
  mutable std::set<std::int64_t> warned_;            // first samples of shards that were written to
  std::list<std::size_t> used_;                      // shards, the latest first
  std::unordered_map<std::size_t, Recent> recent_;
};

// Labels or targets. Small ones, as they nearly always are, are kept in memory shard by shard: a second read for every
// label would halve the rate of small samples. Called by several workers at once.
class Targets {
 public:
  Targets(const ShardIndex&, ShardFiles&, ChunkedReader&);  // which outlive it
  // Of samples id, id + 1, ..., all in this shard: as the step takes them.
  void read(std::size_t shard, std::int64_t id, std::size_t rows, char* to);
  std::size_t bytes() const { return step_; }  // of one row
  bool in_memory() const { return !memory_.empty(); }

 private:
  void load(std::size_t shard, std::int64_t id, std::size_t rows, char* to);

  const ShardIndex& index_;
  ShardFiles& files_;
  ChunkedReader& chunks_;
  const std::size_t stored_, step_;
  std::vector<char> memory_;  // of all rows; empty: too many
  std::vector<std::atomic<bool>> loaded_;
  std::mutex loading_;
};

[[noreturn]] void fail_reading(const Shard&, std::int64_t sample, int error);  // errno
[[noreturn]] void fail_truncated(const Shard&, std::int64_t sample);
// Rows of row_bytes each, the first of which is sample id.
void read_fully(int fd, const Shard&, std::uint64_t offset, char* to, std::size_t bytes, std::int64_t id,
                std::size_t row_bytes);

// The same of shard s of the index, whose name is looked up for an error alone.
void read_fully(int fd, const ShardIndex&, std::size_t s, std::uint64_t offset, char* to, std::size_t bytes,
                std::int64_t id, std::size_t row_bytes);

// How many of ids, from position i on, are neighbours in a shard: one range of bytes, there and in memory.
inline std::size_t run_length(const ShardIndex& index, const ShardRange& shard, std::span<const std::int64_t> ids,
                              std::size_t i) {
  if (index.component.count > 1) return 1;
  const std::int64_t last = shard.end();
  std::size_t run = 1;
  while (i + run < ids.size() && ids[i + run] == ids[i] + std::int64_t(run) && ids[i + run] < last) ++run;
  return run;
}

std::string shard_count_text(const ShardIndex&);  // "12 shards"
bool contiguous(const ShardIndex&);               // x of every shard is one range of bytes

}  // namespace millrace
