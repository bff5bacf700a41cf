// The engine `mmap`: files mapped into memory, samples copied out of them: no system call a sample. For sets that stay
// in memory. A block of a file is read in one piece when its first sample is wanted; since all samples of an epoch are
// wanted, no byte is read in vain.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "mapped_copy.hpp"
#include "millrace/base/error.hpp"
#include "raw_rows.hpp"
#include "read_error.hpp"
#include "read_watch.hpp"
#include "shard_files.hpp"
#include "sources.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif

namespace millrace {
namespace {

constexpr std::size_t block_bytes = 4u << 20;

class MappedFile {
 public:
  ~MappedFile() {
    if (base_) ::munmap(const_cast<char*>(base_), bytes_);
  }

  bool mapped() const { return ready_.load(std::memory_order_acquire); }

  // Several workers at once. Error(data) names the file.
  void map(int fd, const Shard& shard, std::uint64_t needed) {
    const std::lock_guard lock(mapping_);
    if (ready_.load(std::memory_order_relaxed)) return;
    void* memory = ::mmap(nullptr, needed, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
      fail(Exit::data, "cannot map ", shard.path, " (", std::strerror(errno), "). use data.reader = direct");
    base_ = static_cast<const char*>(memory), bytes_ = needed;
    blocks_ = std::vector<std::atomic<bool>>((needed + block_bytes - 1) / block_bytes);
    ready_.store(true, std::memory_order_release);
  }

  // The same place shows the file that is open now; copies by others go on meanwhile.
  void map_again(int fd, const Shard& shard) {
    const std::lock_guard lock(mapping_);
    if (!mapped()) return;
    void* const at = const_cast<char*>(base_);
    if (::mmap(at, bytes_, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
      throw ReadError(cat("cannot map ", shard.path, " (", std::strerror(errno), ")"), errno);
  }

  // False: not all of it is to be had.
  bool copy(std::uint64_t offset, char* to, std::size_t bytes) {
    for (std::size_t b = offset / block_bytes; b <= (offset + bytes - 1) / block_bytes; ++b)
      if (!blocks_[b].load(std::memory_order_relaxed)) {
        const std::size_t from = b * block_bytes;
        char* const at = const_cast<char*>(base_) + from;
        const std::size_t n = std::min(block_bytes, bytes_ - from);
        // Advice: what fails here shows, or not, when it is copied. Older kernels do not know the second.
        ::madvise(at, n, MADV_WILLNEED);
        ::madvise(at, n, MADV_POPULATE_READ);
        blocks_[b].store(true, std::memory_order_relaxed);
      }
    return copy_mapped(to, base_ + offset, bytes);
  }

 private:
  const char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::atomic<bool>> blocks_;  // that were read ahead
  std::atomic<bool> ready_{false};
  std::mutex mapping_;
};

class MappedSource : public Source {
 public:
  MappedSource(const ShardIndex& index, std::string why)
      : index_(index), why_(std::move(why)), x_bytes_(index.sample_bytes()), mapped_(index.shards.size()) {}

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    Touched touched;
    for (std::size_t i = 0; i < ids.size();) {
      const std::size_t s = shard_of(index_, ids[i]);
      const Shard& shard = index_.shards[s];
      const std::size_t run = run_length(shard, ids, i);
      const std::uint64_t offset = shard.x_offset + std::uint64_t(ids[i] - shard.first) * x_bytes_;
      const std::size_t bytes = run * x_bytes_;
      const Reading here(shard);
      if (!mapped_[s].mapped())
        mapped_[s].map(files_.open(s), shard, shard.x_offset + std::uint64_t(shard.rows) * x_bytes_);
      if (!mapped_[s].copy(offset, static_cast<char*>(x) + i * x_bytes_, bytes)) {
        check_end(s, offset, bytes, ids[i]);
        fail_reading(shard, ids[i], EIO);
      }
      targets_.read(s, ids[i], run, static_cast<char*>(y) + i * targets_.bytes());
      note(touched, {s, offset, bytes, ids[i]});
      i += run;
    }
    check(touched);
    if (index_.x_big_endian) swap_bytes(x, ids.size() * std::size_t(index_.sample.count()), size_of(index_.x_dtype));
  }

  void reopen(std::size_t s) override {
    files_.reopen(s);
    mapped_[s].map_again(files_.open(s), index_.shards[s]);
  }

  std::string describe() const override {
    return cat("mmap: contiguous data, ", count_shards(index_), targets_.in_memory() ? ", y in memory" : "", why_);
  }

 private:
  struct Range {
    std::size_t shard;
    std::uint64_t offset;
    std::size_t bytes;
    std::int64_t id;
  };
  struct Touched {  // of each file, the range that ends last; as many as are looked up at once
    std::array<Range, 16> ranges;
    std::size_t count = 0;
  };

  void note(Touched& touched, const Range& r) {
    for (std::size_t t = 0; t < touched.count; ++t)
      if (Range& known = touched.ranges[t]; known.shard == r.shard) {
        if (r.offset > known.offset) known = r;
        return;
      }
    if (touched.count == touched.ranges.size()) check(touched);
    touched.ranges[touched.count++] = r;
  }

  void check(Touched& touched) {
    for (std::size_t t = 0; t < touched.count; ++t) {
      const Range& r = touched.ranges[t];
      check_end(r.shard, r.offset, r.bytes, r.id);
    }
    touched.count = 0;
  }

  // The rest of a page past the end of a file reads as zeros, without a signal: so the end is looked up after copying.
  void check_end(std::size_t s, std::uint64_t offset, std::size_t bytes, std::int64_t id) {
    struct stat status {};
    if (::fstat(files_.open(s), &status) != 0) fail_reading(index_.shards[s], id, errno);
    const auto size = std::uint64_t(status.st_size);
    if (size < offset + bytes)
      fail_truncated(index_.shards[s], id + (size > offset ? std::int64_t((size - offset) / x_bytes_) : 0));
  }

  const ShardIndex index_;
  const std::string why_;
  const std::size_t x_bytes_;
  ShardFiles files_{index_};
  ChunkedRows chunks_{16u << 20};  // y may be chunked where x is not
  Targets targets_{index_, files_, chunks_};
  std::vector<MappedFile> mapped_;
};

}  // namespace

std::unique_ptr<Source> make_mmap_source(const ShardIndex& index, const std::string& why) {
  return std::make_unique<MappedSource>(index, why);
}

}  // namespace millrace
