// Reads hyperslabs of the array x of a file. Internal to data/.
#pragma once
#include <cstdint>
#include <vector>

#include "data/read/mapped_file.hpp"
#include "millrace/data/decode/hyperslab.hpp"
#include "millrace/data/read/shard_files.hpp"

namespace millrace {

// Thread-safe. The index outlives it.
class HyperslabReader {
 public:
  // mapped: contiguous files are mapped into memory instead of read by pread. cache_bytes: of decoded chunks.
  HyperslabReader(const ShardIndex&, bool mapped, std::size_t cache_bytes);
  // Writes the values in C order, in the file's byte order. sample: the sample that they are for. Error(data) names it
  // and the file.
  void read(std::size_t shard, const Hyperslab&, char* to, std::int64_t sample);
  void reopen(std::size_t shard);
  DecodeStats decoded() const { return chunks_.decoded(); }

 private:
  void copy(std::size_t shard, const Hyperslab&, char* to, std::int64_t sample);

  const ShardIndex& index_;
  const std::size_t element_bytes_;
  const bool use_mmap_;
  ShardFiles files_{index_};
  ChunkedReader chunks_;
  std::vector<MappedFile> mapped_;
};

}  // namespace millrace
