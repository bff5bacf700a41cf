// Own threads, own pread, at the extents that HDF5 gave: the hot path never calls HDF5. Contiguous samples cost one
// system call each; chunks are decoded by the calling worker and kept for a while. y, which is small, is kept in memory
// shard by shard (a second call for every label would halve the rate of small samples).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <numeric>
#include <vector>

#include "chunked_rows.hpp"
#include "millrace/base/error.hpp"
#include "raw_rows.hpp"
#include "sources.hpp"

namespace millrace {
namespace {

constexpr std::size_t y_memory_bytes = 64u << 20;       // a rank; larger y are read with their samples
constexpr std::size_t chunk_memory_bytes = 256u << 20;  // a rank: decoded chunks

// A file for one read: kept open by the source, or (past the limit of open files) closed again.
class Descriptor {
 public:
  Descriptor(int fd, bool kept) : fd_(fd), kept_(kept) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (!kept_) ::close(fd_);
  }
  operator int() const { return fd_; }

 private:
  int fd_;
  bool kept_;
};

class DirectSource : public Source {
 public:
  explicit DirectSource(const ShardIndex& index)
      : index_(index),
        x_bytes_(index.sample_bytes()),
        y_stored_(y_stored_bytes(index)),
        y_step_(y_step_bytes(index)),
        chunked_(std::any_of(index.shards.begin(), index.shards.end(),
                             [](const Shard& s) { return s.x_chunks || s.y_chunks; })),
        may_open_(std::int64_t(allow_open_files(index.shards.size()))),
        files_(index.shards.size()) {
    if (std::size_t(index.rows) * y_step_ <= y_memory_bytes) y_memory_.resize(std::size_t(index.rows) * y_step_);
  }
  ~DirectSource() override {
    for (auto& f : files_)
      if (f.fd.load() >= 0) ::close(f.fd.load());
  }

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    char *to_x = static_cast<char*>(x), *to_y = static_cast<char*>(y);
    if (ids.empty()) return;
    if (chunked_)
      read_sorted(ids, to_x, to_y);
    else
      read_runs(ids, to_x, to_y);
    if (index_.x_big_endian) swap_bytes(x, ids.size() * std::size_t(index_.sample.count()), size_of(index_.x_dtype));
  }

  std::string describe() const override {
    return cat("direct: ", describe_storage(index_), ", ", index_.shards.size(),
               index_.shards.size() == 1 ? " shard" : " shards", y_memory_.empty() ? "" : ", y in memory");
  }

 private:
  struct File {
    std::atomic<int> fd{-1};
    std::atomic<bool> y_there{false};
  };

  void read_runs(std::span<const std::int64_t> ids, char* to_x, char* to_y) {
    for (std::size_t i = 0; i < ids.size();) {
      const std::size_t s = shard_of(index_, ids[i]);
      const Shard& shard = index_.shards[s];
      const std::int64_t last = shard.first + shard.rows;
      std::size_t run = 1;  // neighbours in the file are one read
      while (i + run < ids.size() && ids[i + run] == ids[i] + std::int64_t(run) && ids[i + run] < last) ++run;
      const Descriptor fd = file(s);
      const std::uint64_t row = std::uint64_t(ids[i] - shard.first);
      read_at(fd, shard, shard.x_offset + row * x_bytes_, to_x + i * x_bytes_, run * x_bytes_, ids[i], x_bytes_);
      read_y(fd, s, ids[i], run, to_y + i * y_step_);
      i += run;
    }
  }

  // In the order of the files, so that the rows of a chunk follow each other and need it once.
  void read_sorted(std::span<const std::int64_t> ids, char* to_x, char* to_y) {
    thread_local std::vector<std::size_t> order;
    thread_local std::vector<ChunkedRows::Row> rows;
    order.resize(ids.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
    const bool in_order = ids.back() - ids.front() + 1 == std::int64_t(ids.size());
    for (std::size_t i = 0; i < ids.size();) {
      const std::size_t s = shard_of(index_, ids[order[i]]);
      const Shard& shard = index_.shards[s];
      const Descriptor fd = file(s);
      rows.clear();
      for (; i < ids.size() && ids[order[i]] < shard.first + shard.rows; ++i) {
        rows.push_back({ids[order[i]] - shard.first, to_x + order[i] * x_bytes_});
        read_y(fd, s, ids[order[i]], 1, to_y + order[i] * y_step_);
      }
      read_column(fd, shard, 2 * s, shard.x_chunks.get(), index_.x_name, shard.x_offset, x_bytes_, rows, in_order);
    }
  }

  void read_column(int fd, const Shard& shard, std::uint64_t key, const io::ChunkedLayout* chunks,
                   const std::string& name, std::uint64_t offset, std::size_t row_bytes,
                   std::span<const ChunkedRows::Row> rows, bool in_order) {
    if (chunks) {
      const std::string place = shard.path + ":" + name;
      return chunks_.read({fd, key, *chunks, place}, rows, in_order);
    }
    for (const auto& [row, to] : rows)
      read_at(fd, shard, offset + std::uint64_t(row) * row_bytes, to, row_bytes, shard.first + row, row_bytes);
  }

  Descriptor file(std::size_t s) {
    const int there = files_[s].fd.load(std::memory_order_acquire);
    if (there >= 0) return {there, true};
    const std::string& path = index_.shards[s].path;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      fail(Exit::data, "cannot open ", path, " (", std::strerror(errno), errno == EMFILE ? "). raise ulimit -n" : ")");
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    if (opened_.fetch_add(1) >= may_open_) {
      opened_.fetch_sub(1);
      return {fd, false};
    }
    int none = -1;
    if (files_[s].fd.compare_exchange_strong(none, fd, std::memory_order_acq_rel)) return {fd, true};
    opened_.fetch_sub(1);
    ::close(fd);  // another worker was first
    return {none, true};
  }

  void read_y(int fd, std::size_t s, std::int64_t id, std::size_t rows, char* out) {
    if (y_memory_.empty()) return load_y(fd, s, id, rows, out);
    if (!files_[s].y_there.load(std::memory_order_acquire)) {
      const Shard& shard = index_.shards[s];
      const std::lock_guard lock(loading_);
      if (!files_[s].y_there.load(std::memory_order_relaxed))
        load_y(fd, s, shard.first, std::size_t(shard.rows), y_memory_.data() + std::size_t(shard.first) * y_step_);
      files_[s].y_there.store(true, std::memory_order_release);
    }
    std::memcpy(out, y_memory_.data() + std::size_t(id) * y_step_, rows * y_step_);
  }

  void load_y(int fd, std::size_t s, std::int64_t id, std::size_t rows, char* out) {
    const Shard& shard = index_.shards[s];
    thread_local std::vector<char> stored;
    thread_local std::vector<ChunkedRows::Row> places;
    const std::size_t block = std::max<std::size_t>(1, (1u << 20) / y_stored_);
    for (std::size_t done = 0; done < rows; done += block) {
      const std::size_t n = std::min(block, rows - done);
      stored.resize(std::max(stored.size(), n * y_stored_));
      const std::int64_t row = id - shard.first + std::int64_t(done);
      if (shard.y_chunks) {
        places.clear();
        for (std::size_t r = 0; r < n; ++r) places.push_back({row + std::int64_t(r), stored.data() + r * y_stored_});
        read_column(fd, shard, 2 * s + 1, shard.y_chunks.get(), index_.y_name, 0, y_stored_, places, false);
      } else {
        read_at(fd, shard, shard.y_offset + std::uint64_t(row) * y_stored_, stored.data(), n * y_stored_,
                id + std::int64_t(done), y_stored_);
      }
      convert_targets(index_, shard, n, stored.data(), out + done * y_step_);
    }
  }

  // Rows of row_bytes each, the first of which is sample id.
  static void read_at(int fd, const Shard& shard, std::uint64_t offset, char* to, std::size_t bytes, std::int64_t id,
                      std::size_t row_bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t n = ::pread(fd, to + done, bytes - done, off_t(offset + done));
      if (n > 0) {
        done += std::size_t(n);
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      const std::int64_t sample = id + std::int64_t(done / row_bytes);
      if (n < 0) fail(Exit::data, "cannot read sample ", sample, " of ", shard.path, " (", std::strerror(errno), ")");
      fail(Exit::data, shard.path, " ends before sample ", sample, " (truncated while in use). copy or pack it again");
    }
  }

  const ShardIndex index_;
  const std::size_t x_bytes_, y_stored_, y_step_;
  const bool chunked_;
  const std::int64_t may_open_;
  std::atomic<std::int64_t> opened_{0};
  std::vector<File> files_;
  std::mutex loading_;
  ChunkedRows chunks_{chunk_memory_bytes};
  std::vector<char> y_memory_;  // of all rows, as the step takes them; empty: too many
};

}  // namespace

std::unique_ptr<Source> make_direct_source(const ShardIndex& index) { return std::make_unique<DirectSource>(index); }

}  // namespace millrace
