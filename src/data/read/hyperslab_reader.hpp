// Boxes of the array x of a file, read. Private to the data room.
#pragma once
#include <cstdint>
#include <vector>

#include "data/read/mapped_file.hpp"
#include "millrace/data/decode/hyperslab.hpp"
#include "millrace/data/read/shard_files.hpp"

namespace millrace {

// Called by several workers at once. The index outlives it.
class HyperslabReader {
 public:
  // mapped: contiguous files are mapped into memory, not read by pread. cache_bytes: of decoded chunks.
  HyperslabReader(const ShardIndex&, bool mapped, std::size_t cache_bytes);
  // In C order and the file's byte order. Error(data) names the file, and the sample that it is for.
  void read(std::size_t shard, const Hyperslab&, char* to, std::int64_t sample);
  void reopen(std::size_t shard);
  DecodeStats decoded() const { return chunks_.decoded(); }

 private:
  void copy(std::size_t shard, const Hyperslab&, char* to, std::int64_t sample);

  const ShardIndex& index_;
  const std::size_t element_bytes_;
  const bool map_;
  ShardFiles files_{index_};
  ChunkedReader chunks_;
  std::vector<MappedFile> mapped_;
};

}  // namespace millrace
