#include "data/read/hyperslab_reader.hpp"

#include <cerrno>

#include "data/read/slow_read_monitor.hpp"
#include "millrace/base/error.hpp"

namespace millrace {

HyperslabReader::HyperslabReader(const ShardIndex& index, bool mapped, std::size_t cache_bytes)
    : index_(index),
      element_bytes_(size_of(index.x.dtype)),
      use_mmap_(mapped),
      chunks_(cache_bytes),
      mapped_(index.shards.size()) {}

void HyperslabReader::read(std::size_t s, const Hyperslab& slab, char* to, std::int64_t sample) {
  const Shard& shard = index_.shards[s];
  const ReadScope here(shard);
  if (use_mmap_) return copy(s, slab, to, sample);
  const FileDescriptor fd = files_.open(s);
  if (shard.x_chunks) {
    const std::string place = shard.path + ":" + index_.x.name;
    return chunks_.read_hyperslab({fd, s, *shard.x_chunks, place}, slab, to);
  }
  for_each_run(shard.array, slab, [&](std::int64_t offset, std::int64_t count) {
    const std::size_t bytes = std::size_t(count) * element_bytes_;
    read_fully(fd, shard, {shard.x_offset + std::uint64_t(offset) * element_bytes_, bytes, sample, bytes + 1}, to);
    to += bytes;
  });
}

void HyperslabReader::copy(std::size_t s, const Hyperslab& slab, char* to, std::int64_t sample) {
  const Shard& shard = index_.shards[s];
  const FileDescriptor fd = files_.open(s);
  if (!mapped_[s].mapped())
    mapped_[s].map(fd, shard, shard.x_offset + std::uint64_t(shard.array.count()) * element_bytes_);
  std::uint64_t end = shard.x_offset;
  for_each_run(shard.array, slab, [&](std::int64_t offset, std::int64_t count) {
    const std::uint64_t at = shard.x_offset + std::uint64_t(offset) * element_bytes_;
    const std::size_t bytes = std::size_t(count) * element_bytes_;
    if (!mapped_[s].copy(at, to, bytes)) {
      check_end(fd, shard, {at, bytes, sample, bytes + 1});
      fail_reading(shard, sample, EIO);
    }
    to += bytes;
    end = at + bytes;
  });
  check_end(fd, shard, {shard.x_offset, end - shard.x_offset, sample, shard.file_bytes + 1});
}

void HyperslabReader::reopen(std::size_t s) {
  files_.reopen(s);
  if (use_mmap_) mapped_[s].remap(files_.open(s), index_.shards[s]);
}

}  // namespace millrace
