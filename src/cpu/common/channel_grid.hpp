// How batch norm divides a channels-last tensor of (rows, channels) into blocks that stay in the cache.
//   Few channels: several rows are joined into one, so that inner loops are long. The parameters are repeated to match.
//   Many channels: the channels are divided into slabs, so that the rows of a block are short.
// The blocks depend only on the shape. So sums over blocks, added in order, are the same for every number of threads.
#pragma once
#include "cpu/common/tile.hpp"

namespace millrace::cpu {

// `rows` rows of `width` floats, `stride` floats apart, and then `tail` floats of an incomplete last row, which only
// contiguous blocks have.
struct Block {
  std::int64_t index = 0, slab = 0, begin = 0, rows = 0, width = 0, stride = 0, tail = 0;
  bool contiguous() const { return stride == width; }
  std::int64_t count() const { return rows * width + tail; }
};

struct ChannelGrid {
  static constexpr std::int64_t max_width = 256, block_rows = 32, max_block = block_rows * max_width;
  std::int64_t rows, channels, repeat, width, slabs, slab_blocks, chunks, chunk_blocks;

  ChannelGrid(std::int64_t rows_, std::int64_t channels_)
      : rows(rows_),
        channels(channels_),
        repeat(channels < 64 ? (64 + channels - 1) / channels : 1),
        width(std::min(max_width, repeat * channels)),
        slabs((channels + width - 1) / width),
        slab_blocks((line_count() + block_rows - 1) / block_rows),
        chunks(std::clamp<std::int64_t>(slab_blocks / 8, 1, 128)),
        chunk_blocks(std::max<std::int64_t>(1, (slab_blocks + chunks - 1) / chunks)) {
    chunks = (slab_blocks + chunk_blocks - 1) / chunk_blocks;  // without empty chunks
  }

  std::int64_t line_count() const { return (rows + repeat - 1) / repeat; }  // lines of `repeat` rows each
  std::int64_t block_count() const { return slabs * slab_blocks; }
  std::int64_t channel_of(std::int64_t slab) const { return slab * width; }
  std::int64_t channels_in(std::int64_t slab) const { return std::min(width / repeat, channels - slab * width); }

  Block block(std::int64_t index) const {
    Block b;
    b.index = index;
    b.slab = index / slab_blocks;
    const std::int64_t line = index % slab_blocks * block_rows;
    b.rows = std::min<std::int64_t>(block_rows, line_count() - line);
    b.width = slabs == 1 ? width : channels_in(b.slab);
    b.stride = slabs == 1 ? width : channels;
    b.begin = line * b.stride + channel_of(b.slab);
    const std::int64_t missing = line_count() * repeat * channels - rows * channels;
    if (missing > 0 && line + b.rows == line_count()) {
      --b.rows;
      b.tail = b.width - missing;
    }
    return b;
  }

  // Copies one value per channel to one value per lane of the blocks of a slab.
  void spread(float* lanes, const float* values, std::int64_t slab) const {
    const std::int64_t n = channels_in(slab);
    for (std::int64_t r = 0; r < repeat; ++r) std::copy_n(values + channel_of(slab), n, lanes + r * n);
  }
};

}  // namespace millrace::cpu
