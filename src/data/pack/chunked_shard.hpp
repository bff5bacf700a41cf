// Writes a shard whose x is stored in compressed chunks. Private to the data room.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>

#include "millrace/comm/world.hpp"
#include "millrace/data/pack/importer.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

struct ChunkedShard {
  const io::Encoder& codec;
  std::int64_t rows, chunk_rows;
  DType y_dtype;
  std::size_t x_bytes, y_bytes;                                                      // bytes per row
  std::function<void(io::File&)> describe;                                           // creates /x and /y
  std::function<void(std::int64_t row, std::int64_t count, char* x, char* y)> read;  // reads rows of this shard
};

// Collective. All ranks read and encode their chunks in parallel, each with several threads. Then the ranks write one
// after the other: HDF5 allocates the space of a chunk when it is written, and ranks that share an open file can do
// that in parallel only with HDF5's own filters. Returns the bytes that this rank wrote. If one rank fails, every rank
// throws an Error(data); the caller removes the file.
std::uint64_t write_chunked_shard(World&, const std::filesystem::path&, const ChunkedShard&);

}  // namespace millrace
