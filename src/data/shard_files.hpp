// What every engine of own reads shares: open files, runs of neighbouring samples, reads in full, y. Private to the
// data room.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "chunked_rows.hpp"
#include "millrace/data/shards.hpp"
#include "sources.hpp"

namespace millrace {

// A file for one read: kept open by ShardFiles, or (past the limit of open files) closed again.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(int fd, bool kept) : fd_(fd), kept_(kept) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)), kept_(other.kept_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_), std::swap(kept_, other.kept_);
    return *this;
  }
  ~Descriptor();
  operator int() const { return fd_; }

 private:
  int fd_ = -1;
  bool kept_ = true;
};

// Opened when first asked for. Called by several workers at once.
class ShardFiles {
 public:
  // flags: of open(2), besides O_RDONLY. share: the part of the process's open files that these may take.
  explicit ShardFiles(const ShardIndex&, int flags = 0, std::size_t share = 1);
  ~ShardFiles();
  Descriptor open(std::size_t shard);  // Error(data) names the file
  // Those who hold its Descriptor read the file that is there now. Error(data) names it.
  void reopen(std::size_t shard);
  std::size_t size() const { return fds_.size(); }

 private:
  int open_file(const Shard&) const;

  const ShardIndex& index_;
  const int flags_;
  const std::int64_t may_open_;
  std::atomic<std::int64_t> opened_{0};
  std::vector<std::atomic<int>> fds_;
};

// Labels or targets. Small ones, as they nearly always are, are kept in memory shard by shard: a second read for every
// label would halve the rate of small samples. Called by several workers at once.
class Targets {
 public:
  Targets(const ShardIndex&, ShardFiles&, ChunkedRows&);  // which outlive it
  // Of samples id, id + 1, ..., all in this shard: as the step takes them.
  void read(std::size_t shard, std::int64_t id, std::size_t rows, char* to);
  std::size_t bytes() const { return step_; }  // of one row
  bool in_memory() const { return !memory_.empty(); }

 private:
  void load(std::size_t shard, std::int64_t id, std::size_t rows, char* to);

  const ShardIndex& index_;
  ShardFiles& files_;
  ChunkedRows& chunks_;
  const std::size_t stored_, step_;
  std::vector<char> memory_;  // of all rows; empty: too many
  std::vector<std::atomic<bool>> there_;
  std::mutex loading_;
};

[[noreturn]] void fail_reading(const Shard&, std::int64_t sample, int error);  // errno
[[noreturn]] void fail_truncated(const Shard&, std::int64_t sample);
// Rows of row_bytes each, the first of which is sample id.
void read_fully(int fd, const Shard&, std::uint64_t offset, char* to, std::size_t bytes, std::int64_t id,
                std::size_t row_bytes);

// How many of ids, from position i on, are neighbours in shard s: one range of bytes.
inline std::size_t run_length(const Shard& shard, std::span<const std::int64_t> ids, std::size_t i) {
  const std::int64_t last = shard.first + shard.rows;
  std::size_t run = 1;
  while (i + run < ids.size() && ids[i + run] == ids[i] + std::int64_t(run) && ids[i + run] < last) ++run;
  return run;
}

std::string count_shards(const ShardIndex&);  // "12 shards"
bool contiguous(const ShardIndex&);           // x of every shard is one range of bytes

}  // namespace millrace
