// A worker's reads by O_DIRECT. Internal to data/.
#pragma once
#include <fcntl.h>

#include <memory>
#include <span>

#include "millrace/data/read/async_reads.hpp"
#include "millrace/data/read/shard_files.hpp"

namespace millrace {

// What all workers of a source share: each file is open twice, with O_DIRECT for samples and without it for targets.
struct DirectIoFiles {
  const ShardIndex index;
  const std::size_t x_bytes = index.sample_bytes(), pitch = index.sample_pitch();
  ShardFiles plain{index, 0, 2}, direct{index, O_DIRECT, 2};
  ChunkedReader chunks{16u << 20};  // for y, which may be chunked although x is contiguous
  Targets targets{index, plain, chunks};
};

// slots: as for Source::make_read_queue.
std::unique_ptr<ReadQueue> make_direct_io_reads(DirectIoFiles&, std::span<char> slots, const MakeAsyncReads&);

}  // namespace millrace
