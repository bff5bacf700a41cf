// A worker's reads by O_DIRECT. Private to the data room.
#pragma once
#include <fcntl.h>

#include <memory>
#include <span>

#include "millrace/data/read/async_reads.hpp"
#include "millrace/data/read/shard_files.hpp"

namespace millrace {

// What the workers of a source share.
struct DirectIoFiles {
  const ShardIndex index;
  const std::size_t x_bytes = index.sample_bytes(), pitch = index.sample_pitch();
  ShardFiles plain{index, 0, 2}, direct{index, O_DIRECT, 2};
  ChunkedReader chunks{16u << 20};  // y may be chunked where x is not
  Targets targets{index, plain, chunks};
};

// slots: as of Source::reads.
std::unique_ptr<ReadQueue> make_direct_io_reads(DirectIoFiles&, std::span<char> slots, const MakeAsyncReads&);

}  // namespace millrace
