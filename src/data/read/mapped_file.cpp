#include "data/read/mapped_file.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/index/read_error.hpp"
#include "data/read/mapped_copy.hpp"
#include "millrace/base/error.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif

namespace millrace {

namespace {

constexpr std::size_t mapped_block_bytes = 4u << 20;

}  // namespace

MappedFile::~MappedFile() {
  if (base_) ::munmap(const_cast<char*>(base_), bytes_);
}

void MappedFile::map(int fd, const Shard& shard, std::uint64_t needed) {
  const std::lock_guard lock(mapping_);
  if (ready_.load(std::memory_order_relaxed)) return;
  void* memory = ::mmap(nullptr, needed, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    fail(Exit::data, "cannot map {} ({}). use data.reader = direct", shard.path, std::strerror(errno));
  base_ = static_cast<const char*>(memory);
  bytes_ = needed;
  blocks_ = std::vector<std::atomic<bool>>((needed + mapped_block_bytes - 1) / mapped_block_bytes);
  ready_.store(true, std::memory_order_release);
}

void MappedFile::remap(int fd, const Shard& shard) {
  const std::lock_guard lock(mapping_);
  if (!mapped()) return;
  void* const at = const_cast<char*>(base_);
  if (::mmap(at, bytes_, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
    throw ReadError(fmt::format("cannot map {} ({})", shard.path, std::strerror(errno)), errno);
}

bool MappedFile::copy(std::uint64_t offset, char* to, std::size_t bytes) {
  for (std::size_t b = offset / mapped_block_bytes; b <= (offset + bytes - 1) / mapped_block_bytes; ++b)
    if (!blocks_[b].load(std::memory_order_relaxed)) {
      const std::size_t from = b * mapped_block_bytes;
      char* const at = const_cast<char*>(base_) + from;
      const std::size_t n = std::min(mapped_block_bytes, bytes_ - from);
      // Only advice: an error shows when the bytes are copied. Older kernels do not know MADV_POPULATE_READ.
      ::madvise(at, n, MADV_WILLNEED);
      ::madvise(at, n, MADV_POPULATE_READ);
      blocks_[b].store(true, std::memory_order_relaxed);
    }
  return copy_mapped(to, base_ + offset, bytes);
}

void check_end(int fd, const Shard& shard, const SampleBytes& range) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_reading(shard, range.first_sample, errno);
  const auto size = std::uint64_t(status.st_size);
  if (size >= range.offset + range.bytes) return;
  const std::uint64_t there = size > range.offset ? size - range.offset : 0;
  fail_truncated(shard, range.first_sample + std::int64_t(there / range.row_bytes));
}

}  // namespace millrace
