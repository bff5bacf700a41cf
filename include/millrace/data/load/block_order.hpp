// Block-wise shuffling: an order of samples that visits neighbours in a file soon after each other, so that each chunk
// is decoded once an epoch while it stays in memory, and is still random enough to train with. A block is the rows of
// one chunk, or a run of consecutive rows. Blocks come in a random order; within a window of several blocks the samples
// do.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// What the order is made of. Blocks begin anew with every file; a file's last one may be shorter.
struct BlockLayout {
  std::vector<std::int64_t> file_rows;
  std::int64_t block = 1;   // rows
  std::int64_t window = 1;  // blocks; the last window of an epoch may have fewer
};

// Position -> sample id: a pure function of (layout, seed, epoch), every sample exactly once an epoch, the same for
// every number of ranks and workers. Memory: some words a file, whatever its rows. Up to 2^40 rows.
class BlockOrder {
 public:
  BlockOrder(const BlockLayout&, std::uint64_t seed);
  std::int64_t rows() const { return rows_; }
  // Of positions [first, first + count) of an epoch. Called by several threads at once.
  void ids(std::int64_t epoch, std::int64_t first, std::int64_t count, std::int64_t* out) const;

 private:
  struct Epoch;
  std::shared_ptr<const Epoch> epoch(std::int64_t number) const;

  const std::int64_t block_, window_;
  const std::uint64_t seed_;
  std::int64_t rows_ = 0, blocks_ = 0;
  std::vector<std::int64_t> first_row_, first_block_;  // of each file, and behind the last
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Epoch> last_, previous_;  // of the epochs asked for last
};

// A block order fitted to a data set.
struct BlockShuffle {
  BlockLayout layout;
  std::uint64_t block_bytes = 0;  // of a block's samples; of chunks: decoded
  std::string problem;            // why chunks will be decoded more than once, with the mend; empty: they will not
  std::string str() const;        // "blocks of 64 rows, windows of 32 blocks"
};

// block, window: in samples. 0 for block: the rows of a chunk, or of 1 MiB where the data is not chunked; 0 for window:
// as many blocks as half of cache_bytes holds, since two windows are read at once where they meet. The window is
// rounded up to whole blocks. cache_bytes: decoded chunks that a rank keeps. Error(config): a block that would divide
// chunks.
BlockShuffle block_shuffle(const ShardIndex&, std::int64_t block, std::int64_t window, std::uint64_t cache_bytes);

// Where a random order over all samples decodes a chunk for nearly every row, what would spare it; else "".
std::string block_shuffle_advice(const ShardIndex&, std::uint64_t cache_bytes);

}  // namespace millrace
