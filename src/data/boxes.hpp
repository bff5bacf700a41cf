// Boxes of the array x of a file: a range of indices in every dimension. Private to the data room.
#pragma once
#include <cstdint>
#include <vector>

#include "mapped_file.hpp"
#include "shard_files.hpp"

namespace millrace {

// f(offset, count): the box as runs of elements that follow each other in the array, in C order.
template <class F>
void for_each_run(const Shape& array, const Shape& first, const Shape& extent, const F& f) {
  int inner = array.rank - 1;  // dimensions [inner, rank) are one run
  std::int64_t count = extent[inner];
  while (inner > 0 && extent[inner] == array[inner]) count *= extent[--inner];
  Shape at = first;
  for (int moved = 0; moved >= 0;) {
    std::int64_t offset = 0;
    for (int a = 0; a < array.rank; ++a) offset = offset * array[a] + at[a];
    f(offset, count);
    for (moved = inner - 1; moved >= 0 && ++at[moved] == first[moved] + extent[moved]; --moved)
      at[moved] = first[moved];
  }
}

// Called by several workers at once. The index outlives it.
class Boxes {
 public:
  // mapped: contiguous files are mapped into memory, not read by pread. cache_bytes: of decoded chunks.
  Boxes(const ShardIndex&, bool mapped, std::size_t cache_bytes);
  // In C order and the file's byte order. Error(data) names the file, and the sample that it is for.
  void read(std::size_t shard, const Shape& first, const Shape& extent, char* to, std::int64_t sample);
  void reopen(std::size_t shard);
  std::uint64_t chunks_decoded() const { return chunks_.decoded(); }

 private:
  void copy(std::size_t shard, const Shape& first, const Shape& extent, char* to, std::int64_t sample);

  const ShardIndex& index_;
  const std::size_t element_bytes_;
  const bool map_;
  ShardFiles files_{index_};
  ChunkedRows chunks_;
  std::vector<MappedFile> mapped_;
};

}  // namespace millrace
