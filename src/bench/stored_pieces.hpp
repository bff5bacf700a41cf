// Where the bytes of a sample lie in its file. Private to the data room.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "millrace/data/read/shard_files.hpp"

namespace millrace {

struct StoredPiece {
  std::uint64_t offset = 0;
  std::size_t bytes = 0;                      // 0: a chunk that was never written
  const io::ChunkedLayout* chunks = nullptr;  // null: the values themselves, or an encoded image
  std::size_t chunk = 0;                      // number
};

// Of x, without targets that are stored beside it: a few ranges, or the chunks that hold a part of it. For data that is
// read without HDF5. Where an encoded image lies is read from the file.
void for_each_piece(const ShardIndex&, ShardFiles&, std::size_t shard, std::int64_t id,
                    const std::function<void(const StoredPiece&)>&);

}  // namespace millrace
