// The engine `direct`: the workers call pread through the page cache, at the file offsets that the index holds. They
// never call the HDF5 library. A run of contiguous samples costs one system call. Chunks are decoded by the calling
// worker and kept in a cache.
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "data/decode/convert_values.hpp"
#include "data/read/slow_read_monitor.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/decode/chunked_reader.hpp"
#include "millrace/data/read/shard_files.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {
namespace {

class DirectSource : public Source {
 public:
  DirectSource(const ShardIndex& index, std::string why, const ChunkOptions& chunks)
      : index_(index),
        why_(std::move(why)),
        x_bytes_(index.sample_bytes()),
        pitch_(index.sample_pitch()),
        chunked_(std::any_of(index.shards.begin(), index.shards.end(),
                             [](const Shard& s) { return s.x_chunks || s.y_chunks; })),
        decode_ahead_(chunks.decode_ahead),
        chunks_(chunks.cache_bytes) {}

  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    char *to_x = static_cast<char*>(x), *to_y = static_cast<char*>(y);
    if (ids.empty()) return;
    if (chunked_)
      read_sorted(ids, to_x, to_y);
    else
      read_runs(ids, to_x, to_y);
    if (index_.x.big_endian) swap_bytes(x, ids.size() * std::size_t(index_.sample.count()), size_of(index_.x.dtype));
  }

  std::string describe() const override {
    return fmt::format("direct: {}, {}{}{}", describe_storage(index_), shard_count_text(index_),
                       targets_.in_memory() ? ", y in memory" : "", why_);
  }
  void reopen(std::size_t s) override { files_.reopen(s); }

  DecodeStats decoded() const override { return chunks_.decoded(); }

 private:
  void read_runs(std::span<const std::int64_t> ids, char* to_x, char* to_y) {
    for (std::size_t i = 0; i < ids.size();) {
      const std::size_t s = shard_of(index_, ids[i]);
      const ShardRange shard = index_.shards.range(s);
      const std::size_t run = run_length(index_, shard, ids, i);
      const std::uint64_t row = std::uint64_t(ids[i] - shard.first);
      read_fully(files_.open(s), index_, s, {shard.x_offset + row * x_bytes_, run * x_bytes_, ids[i], x_bytes_},
                 to_x + i * pitch_);
      targets_.read(s, ids[i], run, to_y + i * targets_.bytes());
      i += run;
    }
  }

  // Reads in the order of the files, so that the rows of a chunk follow each other and it is decoded once for them.
  void read_sorted(std::span<const std::int64_t> ids, char* to_x, char* to_y) {
    thread_local std::vector<std::size_t> order;
    thread_local std::vector<ChunkedReader::Row> rows;
    sort_by_id(ids, order);
    const bool in_order = decode_ahead_ && ids.back() - ids.front() + 1 == std::int64_t(ids.size());
    for (std::size_t i = 0; i < ids.size();) {
      const std::size_t s = shard_of(index_, ids[order[i]]);
      const ShardRange shard = index_.shards.range(s);
      rows.clear();
      for (; i < ids.size() && ids[order[i]] < shard.end(); ++i) {
        rows.push_back({ids[order[i]] - shard.first, to_x + order[i] * pitch_});
        targets_.read(s, ids[order[i]], 1, to_y + order[i] * targets_.bytes());
      }
      read_shard(s, rows, in_order);
    }
  }

  void read_shard(std::size_t s, std::span<const ChunkedReader::Row> rows, bool in_order) {
    const Shard& shard = index_.shards[s];
    const ReadScope here(shard);
    const FileDescriptor fd = files_.open(s);
    if (shard.x_chunks) {
      const std::string place = shard.path + ":" + index_.x.name;
      return chunks_.read({fd, 2 * s, *shard.x_chunks, place}, rows, in_order);
    }
    for (const auto& [row, to] : rows)
      read_fully(fd, shard, {shard.x_offset + std::uint64_t(row) * x_bytes_, x_bytes_, shard.first + row, x_bytes_},
                 to);
  }

  const ShardIndex index_;
  const std::string why_;
  const std::size_t x_bytes_, pitch_;
  const bool chunked_, decode_ahead_;
  ShardFiles files_{index_};
  ChunkedReader chunks_;
  Targets targets_{index_, files_, chunks_};
};

}  // namespace

std::unique_ptr<Source> make_direct_source(const ShardIndex& index, const std::string& why,
                                           const ChunkOptions& chunks) {
  return std::make_unique<DirectSource>(index, why, chunks);
}

}  // namespace millrace
