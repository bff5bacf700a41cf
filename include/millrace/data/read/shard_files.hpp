// What all engines that read without the HDF5 library share: open files, runs of neighbouring samples, complete reads,
// and labels or targets. Internal to data/ and bench/.
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

// A file descriptor that stays open as long as this object lives. Either another object (ShardFiles) owns the
// descriptor and outlives this one, or all copies of this object own it together and the last one closes it.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  FileDescriptor(int fd, bool kept);  // kept: another object owns fd and closes it
  FileDescriptor(int fd, std::shared_ptr<const void> closes) : fd_(fd), closes_(std::move(closes)) {}
  operator int() const { return fd_; }

 private:
  int fd_ = -1;
  std::shared_ptr<const void> closes_;
};

FileDescriptor open_file(const std::string& path);  // for reading; Error(data)

// The files of a data set, each opened when it is first asked for. Thread-safe. If there are more files than the
// process may have open, the least recently used ones are closed.
class ShardFiles {
 public:
  // flags: of open(2), besides O_RDONLY. share: 1 / share of the open files that the process may have are for these.
  explicit ShardFiles(const ShardIndex&, int flags = 0, std::size_t share = 1);
  ~ShardFiles();
  FileDescriptor open(std::size_t shard);  // Error(data) names the file
  // Opens the file again by its path. Holders of its FileDescriptor then read the new file. Error(data) names the file.
  void reopen(std::size_t shard);

 private:
  struct RecentFile {
    FileDescriptor file;
    std::list<std::size_t>::iterator used;
  };
  int open_file(std::size_t shard) const;
  void check_for_writes(std::size_t shard, int fd) const;
  void report_write(const Shard&, std::int64_t written) const;
  void replace(int old_fd, std::size_t shard) const;
  FileDescriptor open_recent(std::size_t shard);

  const ShardIndex& index_;
  const int flags_;
  const std::size_t max_open_files_;
  std::vector<std::atomic<int>> fds_;                // by shard; empty: there are more files than may be open
  mutable std::atomic<std::int64_t> next_check_{0};  // when to look for writes to an open file again; milliseconds
  mutable std::mutex mutex_;                         // protects the members below
  mutable std::set<std::int64_t> warned_;            // first samples of the shards that were written to
  std::list<std::size_t> used_;                      // shards, the most recently used first
  std::unordered_map<std::size_t, RecentFile> recent_;
};

// Labels or targets. Up to 64 MiB of them stay in memory and are loaded shard by shard, because a second read for each
// label would halve the rate of small samples. Thread-safe.
class Targets {
 public:
  Targets(const ShardIndex&, ShardFiles&, ChunkedReader&);  // all three outlive this object
  // Writes the labels (int32) or targets (float32) of samples id, id + 1, ..., id + rows - 1, all of this shard.
  void read(std::size_t shard, std::int64_t id, std::size_t rows, char* to);
  std::size_t bytes() const { return row_bytes_; }  // of one row, as read() writes it
  bool in_memory() const { return !memory_.empty(); }

 private:
  struct RowBlock;
  void load(std::size_t shard, std::int64_t id, std::size_t rows, char* to);
  void load_block(const RowBlock&, char* to);

  const ShardIndex& index_;
  ShardFiles& files_;
  ChunkedReader& chunks_;
  const std::size_t stored_bytes_, row_bytes_;  // of one row: in the file, and as read() writes it
  std::vector<char> memory_;                    // all rows; empty: they are too many
  std::vector<std::atomic<bool>> loaded_;       // by shard: its rows are in memory_
  std::mutex loading_;
};

[[noreturn]] void fail_reading(const Shard&, std::int64_t sample, int error);  // error: an errno
[[noreturn]] void fail_truncated(const Shard&, std::int64_t sample);

// A range of bytes of a shard's file. The samples in it are needed for error messages only: the byte at offset + n
// belongs to sample first_sample + n / row_bytes.
struct SampleBytes {
  std::uint64_t offset = 0;  // in the file
  std::size_t bytes = 0;
  std::int64_t first_sample = 0;
  std::size_t row_bytes = 1;
};

// Reads the whole range. Error(data) names the file and the first sample that was not read.
void read_fully(int fd, const Shard&, const SampleBytes&, char* to);
// The same for shard s of the index. It looks up the shard's path only for an error.
void read_fully(int fd, const ShardIndex&, std::size_t s, const SampleBytes&, char* to);

// How many of ids, from position i on, are neighbours in a shard, and so are one range of bytes in the file and in
// memory. The samples of concatenated data sets are never neighbours in memory.
inline std::size_t run_length(const ShardIndex& index, const ShardRange& shard, std::span<const std::int64_t> ids,
                              std::size_t i) {
  if (index.component.count > 1) return 1;
  const std::int64_t last = shard.end();
  std::size_t run = 1;
  while (i + run < ids.size() && ids[i + run] == ids[i] + std::int64_t(run) && ids[i + run] < last) ++run;
  return run;
}

std::string shard_count_text(const ShardIndex&);  // "12 shards"
bool contiguous(const ShardIndex&);               // in every shard, x is one range of bytes

}  // namespace millrace
