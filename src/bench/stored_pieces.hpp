// Where the bytes of a sample lie in its file. Internal to bench/.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "millrace/data/read/shard_files.hpp"

namespace millrace {

struct StoredPiece {
  std::uint64_t offset = 0;
  std::size_t bytes = 0;                      // 0: a chunk that was never written
  const io::ChunkedLayout* chunks = nullptr;  // null: not a chunk but plain values, or an encoded image
  std::size_t chunk = 0;                      // its number in `chunks`
};

// Calls f for each piece of a sample's x: a few byte ranges, or the chunks that contain a part of it. Targets are left
// out. Only for data that can be read without the HDF5 library. The place of an encoded image is read from the file.
void for_each_piece(const ShardIndex&, ShardFiles&, std::size_t shard, std::int64_t id,
                    const std::function<void(const StoredPiece&)>&);

}  // namespace millrace
