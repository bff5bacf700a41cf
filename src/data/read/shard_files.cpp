#include "millrace/data/read/shard_files.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/index/concatenated.hpp"
#include "data/index/local_copies.hpp"
#include "data/index/read_error.hpp"
#include "data/read/slow_read_monitor.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"

namespace millrace {
namespace {

constexpr std::size_t y_memory_bytes = 64u << 20;  // per rank; a larger y is read together with its samples

}  // namespace

FileDescriptor::FileDescriptor(int fd, bool kept) : fd_(fd) {
  if (!kept && fd >= 0) closes_ = std::shared_ptr<void>(nullptr, [fd](void*) { ::close(fd); });
}

FileDescriptor open_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(Exit::data, "cannot open {} ({})", path, std::strerror(errno));
  return {fd, false};
}

ShardFiles::ShardFiles(const ShardIndex& index, int flags, std::size_t share)
    : index_(index),
      flags_(flags),
      max_open_files_(
          std::max<std::size_t>(1, raise_open_file_limit(share * index.component.count * index.shards.size()) /
                                       (share * index.component.count))),
      fds_(index.shards.size() <= max_open_files_ ? index.shards.size() : 0) {
  for (auto& fd : fds_) fd.store(-1, std::memory_order_relaxed);
}

ShardFiles::~ShardFiles() {
  for (auto& fd : fds_)
    if (fd.load() >= 0) ::close(fd.load());
}

int ShardFiles::open_file(std::size_t s) const {
  const Shard shard = index_.shards[s];
  const ReadScope here(shard);
  const bool local_copy = index_.copies && index_.copies->used(s);
  const std::string path = path_to_read(index_, s);
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags_);
  if (fd < 0 && local_copy)
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);  // a copy in memory may not support O_DIRECT
  const int error = errno;
  if (fd < 0 && local_copy) {
    if (index_.copies->abandon(s))
      log::local(fmt::format("warning: data.cache: cannot open {} ({}). reading {} instead", path, std::strerror(error),
                             shard.path));
    return open_file(s);
  }
  if (fd < 0)
    throw ReadError(
        fmt::format("cannot open {} ({}{}", path, std::strerror(error), error == EMFILE ? "). raise ulimit -n" : ")"),
        error);
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  if (known && shard.file_bytes > 0 && std::uint64_t(status.st_size) > shard.file_bytes) {
    ::close(fd);
    fail(Exit::data,
         "{} has changed since the start (from {} to {} bytes). let no program write to it, and start the run again",
         path, shard.file_bytes, status.st_size);
  }
  if (known && !local_copy) report_write(shard, status.st_mtim.tv_sec);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  return fd;
}

// A file that was replaced is noticed when it is opened. Writes to an open file are noticed only by fstat(), which
// costs a request on network file systems. So at most ten files a second are checked, those that are being read.
void ShardFiles::check_for_writes(std::size_t s, int fd) const {
  constexpr std::int64_t interval_ms = 100;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const std::int64_t at = now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
  std::int64_t next = next_check_.load(std::memory_order_relaxed);
  if (at < next || !next_check_.compare_exchange_strong(next, at + interval_ms, std::memory_order_relaxed)) return;
  if (index_.copies && index_.copies->used(s)) return;
  const Shard shard = index_.shards[s];
  const ReadScope here(shard);
  struct stat status {};
  if (::fstat(fd, &status) == 0) report_write(shard, status.st_mtim.tv_sec);
}

void ShardFiles::report_write(const Shard& shard, std::int64_t written) const {
  if (shard.mtime_seconds == 0 || shard.mtime_seconds == std::uint32_t(written)) return;
  const std::lock_guard lock(mutex_);
  if (warned_.insert(shard.first).second)
    log::local(
        fmt::format("warning: {} has been written to since the start, so its samples may have changed. let no program "
                    "write to it, and start the run again",
                    shard.path));
}

// dup3() makes the old descriptor number refer to the new file atomically, so concurrent reads need no lock.
void ShardFiles::replace(int old_fd, std::size_t s) const {
  const int fd = open_file(s);
  const int failed = ::dup3(fd, old_fd, O_CLOEXEC) < 0 ? errno : 0;
  ::close(fd);
  if (failed) throw ReadError(fmt::format("cannot open {} ({})", index_.shards[s].path, std::strerror(failed)), failed);
}

void ShardFiles::reopen(std::size_t s) {
  if (!fds_.empty()) {
    const int fd = fds_[s].load(std::memory_order_acquire);
    if (fd >= 0) replace(fd, s);
    return;
  }
  FileDescriptor held;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = recent_.find(s); found != recent_.end()) held = found->second.file;
  }
  if (held >= 0) replace(held, s);
}

FileDescriptor ShardFiles::open(std::size_t s) {
  if (fds_.empty()) return open_recent(s);
  const int known = fds_[s].load(std::memory_order_acquire);
  if (known >= 0) {
    check_for_writes(s, known);
    return {known, true};
  }
  const int fd = open_file(s);
  int none = -1;
  if (fds_[s].compare_exchange_strong(none, fd, std::memory_order_acq_rel)) return {fd, true};
  ::close(fd);  // another worker was first
  return {none, true};
}

FileDescriptor ShardFiles::open_recent(std::size_t s) {
  const auto known = [&]() -> FileDescriptor {
    const auto found = recent_.find(s);
    if (found == recent_.end()) return {};
    used_.splice(used_.begin(), used_, found->second.used);
    return found->second.file;
  };
  {
    const std::lock_guard lock(mutex_);
    if (FileDescriptor file = known(); file >= 0) return file;
  }
  FileDescriptor opened(open_file(s), false);
  const std::lock_guard lock(mutex_);
  if (FileDescriptor file = known(); file >= 0) return file;  // another worker was first
  if (recent_.size() >= max_open_files_) {
    recent_.erase(used_.back());
    used_.pop_back();
  }
  used_.push_front(s);
  recent_[s] = {opened, used_.begin()};
  return opened;
}

Targets::Targets(const ShardIndex& index, ShardFiles& files, ChunkedReader& chunks)
    : index_(index),
      files_(files),
      chunks_(chunks),
      stored_bytes_(y_stored_bytes(index)),
      row_bytes_(y_batch_bytes(index)),
      loaded_(index.shards.size()) {
  if (std::size_t(index.rows) * row_bytes_ <= y_memory_bytes) memory_.resize(std::size_t(index.rows) * row_bytes_);
}

void Targets::read(std::size_t s, std::int64_t id, std::size_t rows, char* to) {
  if (row_bytes_ == 0) return;
  if (memory_.empty()) return load(s, id, rows, to);
  if (!loaded_[s].load(std::memory_order_acquire)) {
    const Shard& shard = index_.shards[s];
    const std::lock_guard lock(loading_);
    if (!loaded_[s].load(std::memory_order_relaxed))
      load(s, shard.first, std::size_t(shard.rows), memory_.data() + std::size_t(shard.first) * row_bytes_);
    loaded_[s].store(true, std::memory_order_release);
  }
  std::memcpy(to, memory_.data() + std::size_t(id) * row_bytes_, rows * row_bytes_);
}

// Consecutive rows of a shard that are read and converted at once.
struct Targets::RowBlock {
  std::size_t shard;
  std::int64_t id;  // of the first row
  std::size_t rows;
  const FileDescriptor& fd;
};

void Targets::load(std::size_t s, std::int64_t id, std::size_t rows, char* to) {
  const ReadScope here(index_.shards.range(s));
  const FileDescriptor fd = files_.open(s);
  const std::size_t block = std::max<std::size_t>(1, (1u << 20) / stored_bytes_);
  for (std::size_t done = 0; done < rows; done += block)
    load_block({s, id + std::int64_t(done), std::min(block, rows - done), fd}, to + done * row_bytes_);
}

void Targets::load_block(const RowBlock& b, char* to) {
  thread_local std::vector<char> stored, converted;
  thread_local std::vector<ChunkedReader::Row> places;
  const Shard& shard = index_.shards[b.shard];
  const auto parts = targets_of(index_, shard);
  const std::int64_t row = b.id - shard.first;
  stored.resize(std::max(stored.size(), b.rows * stored_bytes_));
  converted.resize(std::max(converted.size(), b.rows * row_bytes_));
  std::size_t first = 0;  // where the part starts within a row
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const TargetPart& part = parts[p];
    const std::size_t bytes = part.stored_bytes();
    if (part.chunks) {
      places.clear();
      for (std::size_t r = 0; r < b.rows; ++r) places.push_back({row + std::int64_t(r), stored.data() + r * bytes});
      const std::string place = shard.path + ":" + part.name;
      // The keys of the chunk cache are odd for y; the even ones are for x.
      chunks_.read({b.fd, 2 * (p * index_.shards.size() + b.shard) + 1, *part.chunks, place}, places, false);
    } else {
      read_fully(b.fd, shard, {part.offset + std::uint64_t(row) * bytes, b.rows * bytes, b.id, bytes}, stored.data());
    }
    if (parts.size() == 1) return convert_targets(part, shard, std::int64_t(b.rows), stored.data(), to);
    convert_targets(part, shard, std::int64_t(b.rows), stored.data(), converted.data());
    const std::size_t part_bytes = std::size_t(part.count) * sizeof(float);
    for (std::size_t r = 0; r < b.rows; ++r)
      std::memcpy(to + r * row_bytes_ + first, converted.data() + r * part_bytes, part_bytes);
    first += part_bytes;
  }
}

void fail_reading(const Shard& shard, std::int64_t sample, int error) {
  throw ReadError(fmt::format("cannot read sample {} of {} ({})", sample, shard.path, std::strerror(error)), error);
}

void fail_truncated(const Shard& shard, std::int64_t sample) {
  fail(Exit::data, "{} ends before sample {} (truncated while in use). copy or pack it again", shard.path, sample);
}

namespace {

// Returns how many bytes were read: all of them, or those before the end of the file (error = 0) or before a failure.
std::size_t read_some(int fd, const SampleBytes& range, char* to, int& error) {
  std::size_t done = 0;
  while (done < range.bytes) {
    const ssize_t n = ::pread(fd, to + done, range.bytes - done, off_t(range.offset + done));
    if (n < 0 && errno == EINTR) continue;
    error = n < 0 ? errno : 0;
    if (n <= 0) break;
    done += std::size_t(n);
  }
  return done;
}

[[noreturn]] void fail_after(std::size_t done, int error, const Shard& shard, const SampleBytes& range) {
  const std::int64_t sample = range.first_sample + std::int64_t(done / range.row_bytes);
  if (error) fail_reading(shard, sample, error);
  fail_truncated(shard, sample);
}

}  // namespace

void read_fully(int fd, const Shard& shard, const SampleBytes& range, char* to) {
  const ReadScope here(shard);
  int error = 0;
  const std::size_t done = read_some(fd, range, to, error);
  if (done < range.bytes) fail_after(done, error, shard, range);
}

void read_fully(int fd, const ShardIndex& index, std::size_t s, const SampleBytes& range, char* to) {
  const ReadScope here(index.shards.range(s));
  int error = 0;
  const std::size_t done = read_some(fd, range, to, error);
  if (done < range.bytes) fail_after(done, error, index.shards[s], range);
}

std::string shard_count_text(const ShardIndex& index) {
  return fmt::format("{}{}", index.shards.size(), index.shards.size() == 1 ? " shard" : " shards");
}

bool contiguous(const ShardIndex& index) {
  return readable_without_hdf5(index) && std::none_of(index.shards.begin(), index.shards.end(), [](const Shard& s) {
           return s.x_chunks ||
                  std::any_of(s.extra_x.begin(), s.extra_x.end(), [](const DatasetLocation& e) { return e.chunks; });
         });
}

}  // namespace millrace
