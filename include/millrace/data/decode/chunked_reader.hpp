// Rows and boxes of chunked data sets by own reads: pread of the stored chunk, own decoding, any number of threads at
// once. Private to the data room.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "millrace/data/decode/busy_clock.hpp"
#include "millrace/data/decode/chunk_cache.hpp"
#include "millrace/data/decode/hyperslab.hpp"
#include "millrace/device/tensor.hpp"
#include "millrace/io/chunks.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

class ChunkedReader {
 public:
  explicit ChunkedReader(std::size_t cache_bytes) : cache_(cache_bytes) {}

  struct Row {
    std::int64_t row;  // of the data set
    char* to;          // gets it, in the file's byte order
  };
  // What is read from: `key` tells data sets apart, `place` is for messages.
  struct ChunkedDataset {
    int fd;
    std::uint64_t key;
    const io::ChunkedLayout& layout;
    const std::string& place;
  };
  // Rows in ascending order. ahead: more rows in order are likely to follow, so instead of waiting for a chunk that
  // another thread decodes, the one behind all these is decoded. Error(data) names place and row.
  void read(const ChunkedDataset&, std::span<const Row>, bool ahead);
  // A box of the array: a range of indices in every dimension, in C order. Chunks that it touches are decoded or waited
  // for one after the other. Error(data) names place and first row.
  void read_hyperslab(const ChunkedDataset&, const Hyperslab&, char* to);
  DecodeStats decoded() const { return {cache_.decoded_count(), decoding_.seconds()}; }

 private:
  ChunkCache::Chunk chunk(const ChunkedDataset&, std::size_t number, bool wait, std::int64_t row);
  ChunkCache cache_;
  BusyClock decoding_;
};

}  // namespace millrace
