// A shard whose x is stored in compressed chunks. Private to the data room.
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
  std::size_t x_bytes, y_bytes;                                                      // of a row
  std::function<void(io::File&)> describe;                                           // makes /x and /y
  std::function<void(std::int64_t row, std::int64_t count, char* x, char* y)> read;  // rows of this shard
};

// Collective. Each rank reads and encodes its own chunks, all ranks at once and each by several threads; then they
// write, one rank after the other: HDF5 gives a chunk its place when it is written, which ranks that share an open file
// could do together only by its own filters. Returns the bytes that this rank wrote. Error(data) on every rank where
// one fails; the file is the caller's to remove.
std::uint64_t write_chunked_shard(World&, const std::filesystem::path&, const ChunkedShard&);

}  // namespace millrace
