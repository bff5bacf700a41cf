// Block-wise shuffling: an order of samples that visits neighbours in a file within a short time, so that each chunk is
// decoded once an epoch while it stays in memory. It is still random enough to train with. A block is the rows of one
// chunk, or a run of consecutive rows. The blocks of an epoch come in a random order; a window is several consecutive
// blocks of that order, and the samples within a window are shuffled.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// How the rows of a data set are divided into blocks. The first block of a file starts at its first row; the last block
// of a file may be shorter.
struct BlockLayout {
  std::vector<std::int64_t> file_rows;
  std::int64_t block = 1;   // rows per block
  std::int64_t window = 1;  // blocks per window; the last window of an epoch may have fewer
};

// Maps a position to a sample id: a pure function of (layout, seed, epoch) that yields every sample exactly once an
// epoch and does not depend on the number of ranks and workers. It needs a few words of memory for each file. Supports
// up to 2^40 rows.
class BlockOrder {
 public:
  BlockOrder(const BlockLayout&, std::uint64_t seed);
  std::int64_t rows() const { return rows_; }
  // Writes the sample ids at positions [first, first + count) of an epoch to `out`. Thread-safe.
  void ids(std::int64_t epoch, std::int64_t first, std::int64_t count, std::int64_t* out) const;

 private:
  struct Epoch;
  std::shared_ptr<const Epoch> epoch(std::int64_t number) const;

  const std::int64_t block_, window_;
  const std::uint64_t seed_;
  std::int64_t rows_ = 0, blocks_ = 0;
  std::vector<std::int64_t> first_row_, first_block_;  // of each file, and one more entry: the totals
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Epoch> last_, previous_;  // the two epochs that were computed last
};

// A block order fitted to a data set.
struct BlockShuffle {
  BlockLayout layout;
  std::uint64_t block_bytes = 0;  // of a block's samples; chunked data: of its decoded chunks
  std::string problem;            // why chunks will be decoded more than once, and the remedy; empty: they will not
  std::string str() const;        // "blocks of 64 rows, windows of 32 blocks"
};

// block and window are numbers of samples.
// block = 0: the rows of a chunk, or of 1 MiB where the data is not chunked.
// window = 0: as many blocks as fit in half of cache_bytes, because two windows are read at once where they meet.
// The window is rounded up to whole blocks. cache_bytes: size of a rank's cache of decoded chunks.
// Error(config): `block` is not a multiple of the rows of a chunk.
BlockShuffle block_shuffle(const ShardIndex&, std::int64_t block, std::int64_t window, std::uint64_t cache_bytes);

// A random order over all samples can decode a chunk for nearly every row. Returns advice where that is so, else "".
std::string block_shuffle_advice(const ShardIndex&, std::uint64_t cache_bytes);

}  // namespace millrace
