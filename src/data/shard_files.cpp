#include "shard_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "millrace/base/error.hpp"
#include "read_error.hpp"
#include "read_watch.hpp"

namespace millrace {
namespace {

constexpr std::size_t y_memory_bytes = 64u << 20;  // a rank; larger y are read with their samples

}  // namespace

Descriptor::~Descriptor() {
  if (!kept_ && fd_ >= 0) ::close(fd_);
}

ShardFiles::ShardFiles(const ShardIndex& index, int flags, std::size_t share)
    : index_(index),
      flags_(flags),
      may_open_(std::int64_t(allow_open_files(share * index.shards.size()) / share)),
      fds_(index.shards.size()) {
  for (auto& fd : fds_) fd.store(-1, std::memory_order_relaxed);
}

ShardFiles::~ShardFiles() {
  for (auto& fd : fds_)
    if (fd.load() >= 0) ::close(fd.load());
}

int ShardFiles::open_file(const Shard& shard) const {
  const Reading here(shard);
  const int fd = ::open(shard.path.c_str(), O_RDONLY | O_CLOEXEC | flags_);
  const int error = errno;
  if (fd < 0)
    throw ReadError(
        cat("cannot open ", shard.path, " (", std::strerror(error), error == EMFILE ? "). raise ulimit -n" : ")"),
        error);
  struct stat status {};
  if (::fstat(fd, &status) == 0 && shard.file_bytes > 0 && std::uint64_t(status.st_size) > shard.file_bytes) {
    ::close(fd);
    fail(Exit::data, shard.path, " has changed since the start (from ", shard.file_bytes, " to ", status.st_size,
         " bytes). let no program write to it, and start again");
  }
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  return fd;
}

// The number stays and means another file from one moment to the next, so reads by others need no lock.
void ShardFiles::reopen(std::size_t s) {
  const int there = fds_[s].load(std::memory_order_acquire);
  if (there < 0) return;
  const int fd = open_file(index_.shards[s]);
  const int failed = ::dup3(fd, there, O_CLOEXEC) < 0 ? errno : 0;
  ::close(fd);
  if (failed) throw ReadError(cat("cannot open ", index_.shards[s].path, " (", std::strerror(failed), ")"), failed);
}

Descriptor ShardFiles::open(std::size_t s) {
  const int there = fds_[s].load(std::memory_order_acquire);
  if (there >= 0) return {there, true};
  const int fd = open_file(index_.shards[s]);
  if (opened_.fetch_add(1) >= may_open_) {
    opened_.fetch_sub(1);
    return {fd, false};
  }
  int none = -1;
  if (fds_[s].compare_exchange_strong(none, fd, std::memory_order_acq_rel)) return {fd, true};
  opened_.fetch_sub(1);
  ::close(fd);  // another worker was first
  return {none, true};
}

Targets::Targets(const ShardIndex& index, ShardFiles& files, ChunkedRows& chunks)
    : index_(index),
      files_(files),
      chunks_(chunks),
      stored_(y_stored_bytes(index)),
      step_(y_step_bytes(index)),
      there_(index.shards.size()) {
  if (std::size_t(index.rows) * step_ <= y_memory_bytes) memory_.resize(std::size_t(index.rows) * step_);
}

void Targets::read(std::size_t s, std::int64_t id, std::size_t rows, char* to) {
  if (memory_.empty()) return load(s, id, rows, to);
  if (!there_[s].load(std::memory_order_acquire)) {
    const Shard& shard = index_.shards[s];
    const std::lock_guard lock(loading_);
    if (!there_[s].load(std::memory_order_relaxed))
      load(s, shard.first, std::size_t(shard.rows), memory_.data() + std::size_t(shard.first) * step_);
    there_[s].store(true, std::memory_order_release);
  }
  std::memcpy(to, memory_.data() + std::size_t(id) * step_, rows * step_);
}

void Targets::load(std::size_t s, std::int64_t id, std::size_t rows, char* to) {
  const Shard& shard = index_.shards[s];
  const Reading here(shard);
  const Descriptor fd = files_.open(s);
  thread_local std::vector<char> stored;
  thread_local std::vector<ChunkedRows::Row> places;
  const std::size_t block = std::max<std::size_t>(1, (1u << 20) / stored_);
  for (std::size_t done = 0; done < rows; done += block) {
    const std::size_t n = std::min(block, rows - done);
    stored.resize(std::max(stored.size(), n * stored_));
    const std::int64_t row = id - shard.first + std::int64_t(done);
    if (shard.y_chunks) {
      places.clear();
      for (std::size_t r = 0; r < n; ++r) places.push_back({row + std::int64_t(r), stored.data() + r * stored_});
      const std::string place = shard.path + ":" + index_.y_name;
      chunks_.read({fd, 2 * s + 1, *shard.y_chunks, place}, places, false);
    } else {
      read_fully(fd, shard, shard.y_offset + std::uint64_t(row) * stored_, stored.data(), n * stored_,
                 id + std::int64_t(done), stored_);
    }
    convert_targets(index_, shard, n, stored.data(), to + done * step_);
  }
}

void fail_reading(const Shard& shard, std::int64_t sample, int error) {
  throw ReadError(cat("cannot read sample ", sample, " of ", shard.path, " (", std::strerror(error), ")"), error);
}

void fail_truncated(const Shard& shard, std::int64_t sample) {
  fail(Exit::data, shard.path, " ends before sample ", sample, " (truncated while in use). copy or pack it again");
}

void read_fully(int fd, const Shard& shard, std::uint64_t offset, char* to, std::size_t bytes, std::int64_t id,
                std::size_t row_bytes) {
  const Reading here(shard);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(fd, to + done, bytes - done, off_t(offset + done));
    if (n > 0) {
      done += std::size_t(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    const std::int64_t sample = id + std::int64_t(done / row_bytes);
    if (n < 0) fail_reading(shard, sample, errno);
    fail_truncated(shard, sample);
  }
}

std::string count_shards(const ShardIndex& index) {
  return cat(index.shards.size(), index.shards.size() == 1 ? " shard" : " shards");
}

bool contiguous(const ShardIndex& index) {
  return own_reads(index) &&
         std::none_of(index.shards.begin(), index.shards.end(), [](const Shard& s) { return s.x_chunks != nullptr; });
}

}  // namespace millrace
