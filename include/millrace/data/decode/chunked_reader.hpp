// ChunkedReader: reads rows and hyperslabs of chunked data sets without the HDF5 library. It reads the stored chunk
// with pread and decodes it. Thread-safe. Private to the data room.
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
    char* to;          // destination; the values keep the file's byte order
  };
  // The data set to read from. `key` is unique per data set in this reader; `place` is its name in messages.
  struct ChunkedDataset {
    int fd;
    std::uint64_t key;
    const io::ChunkedLayout& layout;
    const std::string& place;
  };
  // Reads rows in ascending order. ahead: the caller reads in order, so that the following rows are needed soon.
  // Instead of waiting for a chunk that another thread decodes, this thread then decodes the chunk behind the last row.
  // Error(data) names place and row.
  void read(const ChunkedDataset&, std::span<const Row>, bool ahead);
  // Reads a hyperslab in C order. Its chunks are decoded, or waited for, one after the other. Error(data) names place
  // and first row.
  void read_hyperslab(const ChunkedDataset&, const Hyperslab&, char* to);
  DecodeStats decoded() const { return {cache_.decoded_count(), decoding_.seconds()}; }

 private:
  ChunkCache::Chunk chunk(const ChunkedDataset&, std::size_t number, bool wait, std::int64_t row);
  ChunkCache cache_;
  BusyClock decoding_;
};

}  // namespace millrace
