// Own threads, own pread, at the extents that HDF5 gave: the hot path never calls HDF5.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "millrace/base/error.hpp"
#include "raw_rows.hpp"
#include "sources.hpp"

namespace millrace {
namespace {

class DirectSource : public Source {
 public:
  explicit DirectSource(const ShardIndex& index)
      : index_(index),
        x_bytes_(index.sample_bytes()),
        y_stored_(size_of(index.y_dtype) * std::size_t(std::max<std::int64_t>(1, index.target.count()))),
        files_(index.shards.size()) {
    for (auto& f : files_) f.store(-1);
    allow_open_files(files_.size() + 64);
  }
  ~DirectSource() override {
    for (auto& f : files_)
      if (f.load() >= 0) ::close(f.load());
  }

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    char* out = static_cast<char*>(x);
    thread_local std::vector<char> labels;
    labels.resize(std::max(labels.size(), ids.size() * y_stored_));
    for (std::size_t i = 0; i < ids.size();) {
      const std::size_t s = shard_of(ids[i]);
      const Shard& shard = index_.shards[s];
      const std::int64_t row = ids[i] - shard.first;
      std::size_t run = 1;  // neighbours in the file are one read
      while (i + run < ids.size() && ids[i + run] == ids[i] + std::int64_t(run) && row + std::int64_t(run) < shard.rows)
        ++run;
      const int fd = file(s);
      read_at(fd, shard, shard.x_offset + std::uint64_t(row) * x_bytes_, out + i * x_bytes_, run * x_bytes_, ids[i]);
      read_at(fd, shard, shard.y_offset + std::uint64_t(row) * y_stored_, labels.data() + i * y_stored_,
              run * y_stored_, ids[i]);
      i += run;
    }
    finish_rows(index_, ids.size(), x, labels.data(), y);
  }

  std::string describe() const override {
    return cat("direct: pread of ", index_.shards.size(), index_.shards.size() == 1 ? " shard" : " shards");
  }

 private:
  static void allow_open_files(std::size_t wanted) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }

  std::size_t shard_of(std::int64_t id) const {
    const auto after = std::upper_bound(index_.shards.begin(), index_.shards.end(), id,
                                        [](std::int64_t i, const Shard& s) { return i < s.first; });
    return std::size_t(after - index_.shards.begin()) - 1;
  }

  int file(std::size_t s) {
    int fd = files_[s].load(std::memory_order_acquire);
    if (fd >= 0) return fd;
    const std::string& path = index_.shards[s].path;
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      fail(Exit::data, "cannot open ", path, " (", std::strerror(errno), errno == EMFILE ? "). raise ulimit -n" : ")");
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    int none = -1;
    if (files_[s].compare_exchange_strong(none, fd, std::memory_order_acq_rel)) return fd;
    ::close(fd);  // another worker was first
    return none;
  }

  static void read_at(int fd, const Shard& shard, std::uint64_t offset, char* to, std::size_t bytes, std::int64_t id) {
    while (bytes > 0) {
      const ssize_t n = ::pread(fd, to, bytes, off_t(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(Exit::data, "cannot read sample ", id, " of ", shard.path, " (", std::strerror(errno), ")");
      if (n == 0)
        fail(Exit::data, shard.path, " ends before sample ", id, " (truncated while in use). copy or pack it again");
      to += n, offset += std::uint64_t(n), bytes -= std::size_t(n);
    }
  }

  const ShardIndex index_;
  const std::size_t x_bytes_, y_stored_;
  std::vector<std::atomic<int>> files_;
};

}  // namespace

void finish_rows(const ShardIndex& index, std::size_t rows, void* x, void* y_stored, void* y) {
  const std::int64_t per_row = std::max<std::int64_t>(1, index.target.count()), count = std::int64_t(rows) * per_row;
  if (index.x_big_endian) swap_bytes(x, rows * std::size_t(index.sample.count()), size_of(index.x_dtype));
  if (index.y_big_endian) swap_bytes(y_stored, std::size_t(count), size_of(index.y_dtype));
  if (index.labels)
    labels_to_int32(y_stored, index.y_dtype, count, static_cast<std::int32_t*>(y));
  else
    targets_to_float(y_stored, index.y_dtype, count, static_cast<float*>(y));
}

std::unique_ptr<Source> make_direct_source(const ShardIndex& index) { return std::make_unique<DirectSource>(index); }

}  // namespace millrace
