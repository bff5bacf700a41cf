// The engine `mmap`: files are mapped into memory and samples are copied from there, without a system call for each. It
// suits data sets that stay in the page cache. A block of a file is read at once when its first sample is needed; an
// epoch needs all samples, so no byte is read in vain.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <vector>

#include "data/decode/convert_values.hpp"
#include "data/read/mapped_file.hpp"
#include "data/read/slow_read_monitor.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/read/shard_files.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {
namespace {

// How many files may be mapped; the others are read by pread. A process may have vm.max_map_count mappings, which its
// libraries need too, and there are a training set and an evaluation set.
std::size_t max_mapped_files() {
  std::size_t max_mappings = 65530;
  std::ifstream("/proc/sys/vm/max_map_count") >> max_mappings;
  return max_mappings / 4;
}

class MappedSource : public Source {
 public:
  MappedSource(const ShardIndex& index, std::string why)
      : index_(index),
        why_(std::move(why)),
        x_bytes_(index.sample_bytes()),
        pitch_(index.sample_pitch()),
        mapped_(std::min(index.shards.size(), max_mapped_files())) {}

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    Touched touched;
    for (std::size_t i = 0; i < ids.size();) {
      const std::size_t s = shard_of(index_, ids[i]);
      const ShardRange shard = index_.shards.range(s);
      const std::size_t run = run_length(index_, shard, ids, i);
      const std::uint64_t offset = shard.x_offset + std::uint64_t(ids[i] - shard.first) * x_bytes_;
      const std::size_t bytes = run * x_bytes_;
      const ReadScope here(shard);
      if (s >= mapped_.size())
        read_fully(files_.open(s), index_, s, {offset, bytes, ids[i], x_bytes_}, static_cast<char*>(x) + i * pitch_);
      else if (!mapped_[s].mapped())
        mapped_[s].map(files_.open(s), index_.shards[s], shard.x_offset + std::uint64_t(shard.rows) * x_bytes_);
      if (s < mapped_.size() && !mapped_[s].copy(offset, static_cast<char*>(x) + i * pitch_, bytes)) {
        check_end(files_.open(s), index_.shards[s], {offset, bytes, ids[i], x_bytes_});
        fail_reading(index_.shards[s], ids[i], EIO);
      }
      targets_.read(s, ids[i], run, static_cast<char*>(y) + i * targets_.bytes());
      if (s < mapped_.size()) note(touched, {s, {offset, bytes, ids[i], x_bytes_}});
      i += run;
    }
    check(touched);
    if (index_.x.big_endian) swap_bytes(x, ids.size() * std::size_t(index_.sample.count()), size_of(index_.x.dtype));
  }

  void reopen(std::size_t s) override {
    files_.reopen(s);
    if (s < mapped_.size()) mapped_[s].remap(files_.open(s), index_.shards[s]);
  }

  std::string describe() const override {
    const std::size_t read = index_.shards.size() - mapped_.size();
    return fmt::format("mmap: contiguous data, {}{}{}{}", shard_count_text(index_),
                       read > 0 ? fmt::format(" ({} of them not mapped: vm.max_map_count)", read) : "",
                       targets_.in_memory() ? ", y in memory" : "", why_);
  }

 private:
  struct ShardRangeRead {
    std::size_t shard;
    SampleBytes range;
  };
  // The last range that was copied from each file. The ends of these files are checked together, by check().
  struct Touched {
    std::array<ShardRangeRead, 16> ranges;
    std::size_t count = 0;
  };

  void note(Touched& touched, const ShardRangeRead& r) {
    for (std::size_t t = 0; t < touched.count; ++t)
      if (ShardRangeRead& known = touched.ranges[t]; known.shard == r.shard) {
        if (r.range.offset > known.range.offset) known = r;
        return;
      }
    if (touched.count == touched.ranges.size()) check(touched);
    touched.ranges[touched.count++] = r;
  }

  void check(Touched& touched) {
    for (std::size_t t = 0; t < touched.count; ++t) {
      const ShardRangeRead& r = touched.ranges[t];
      check_end(files_.open(r.shard), index_.shards[r.shard], r.range);
    }
    touched.count = 0;
  }

  const ShardIndex index_;
  const std::string why_;
  const std::size_t x_bytes_, pitch_;
  ShardFiles files_{index_};
  ChunkedReader chunks_{16u << 20};  // for y, which may be chunked although x is contiguous
  Targets targets_{index_, files_, chunks_};
  std::vector<MappedFile> mapped_;
};

}  // namespace

std::unique_ptr<Source> make_mmap_source(const ShardIndex& index, const std::string& why) {
  return std::make_unique<MappedSource>(index, why);
}

}  // namespace millrace
