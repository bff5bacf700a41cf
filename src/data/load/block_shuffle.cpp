// Fits a block order to the chunks of the files.
#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/data/load/block_order.hpp"

namespace millrace {
namespace {

constexpr std::int64_t unchunked_block_bytes = 1 << 20;
constexpr std::int64_t min_rows_for_advice = 4;  // of a chunk; with fewer, a random order is about as fast

// The largest chunks of x.
struct Chunks {
  std::int64_t rows = 0;         // maximum of a chunk; 0: no file is chunked
  std::uint64_t band_bytes = 0;  // of all chunks that hold the same rows, decoded
};

Chunks chunks_of(const ShardIndex& index) {
  Chunks out;
  if (index.samples_are_views() && index.view.sample != SampleKind::pair) return out;  // samples are not rows of chunks
  for (const Shard& s : index.shards) {
    if (!s.x_chunks || s.x_chunks->chunk[0] <= out.rows) continue;
    out.rows = s.x_chunks->chunk[0];
    out.band_bytes = s.x_chunks->chunk_bytes();
    for (std::size_t d = 1; d < s.x_chunks->shape.size(); ++d)
      out.band_bytes *= std::uint64_t(s.x_chunks->chunks_along(d));
  }
  return out;
}

// The selected rows of each block of a file, which take the place of files: their blocks are then those of the file.
std::vector<std::int64_t> selected_blocks(const ShardIndex& index, std::int64_t block) {
  std::vector<std::int64_t> out;
  for (std::size_t s = 0; s < index.shards.size(); ++s) {
    const ShardRange file = index.shards.range(s);
    for (std::int64_t first = file.first; first < file.end(); first += block) {
      const RowSelection& selected = *index.selection;
      const std::int64_t rows = selected.count_below(std::min(first + block, file.end())) - selected.count_below(first);
      if (rows > 0) out.push_back(rows);
    }
  }
  return out;
}

}  // namespace

std::string BlockShuffle::str() const {
  return fmt::format("blocks of {} rows, windows of {} blocks", layout.block, layout.window);
}

BlockShuffle block_shuffle(const ShardIndex& index, std::int64_t block, std::int64_t window,
                           std::uint64_t cache_bytes) {
  const Chunks chunks = chunks_of(index);
  if (chunks.rows > 0 && block % chunks.rows != 0)
    fail(Exit::config,
         "data.shuffle_block: {} is not a multiple of the {} rows of a chunk, so chunks would be decoded twice. give a "
         "multiple, or auto",
         block, chunks.rows);
  BlockShuffle out;
  for (const Shard& s : index.shards) out.layout.file_rows.push_back(s.rows);
  if (index.shards.empty()) out.layout.file_rows.push_back(index.selected_rows());  // synthetic
  const auto sample_bytes = std::int64_t(std::max<std::size_t>(1, index.sample_bytes()));
  const std::int64_t usual =
      chunks.rows > 0 ? chunks.rows : std::max<std::int64_t>(1, unchunked_block_bytes / sample_bytes);
  const std::int64_t longest = *std::max_element(out.layout.file_rows.begin(), out.layout.file_rows.end());
  const std::int64_t unit = std::max<std::int64_t>(1, chunks.rows);
  out.layout.block = std::min(block > 0 ? block : usual, ((longest - 1) / unit + 1) * unit);
  out.block_bytes = chunks.rows > 0 ? chunks.band_bytes * std::uint64_t(out.layout.block / chunks.rows)
                                    : std::uint64_t(out.layout.block * sample_bytes);
  if (index.selection && !index.shards.empty()) out.layout.file_rows = selected_blocks(index, out.layout.block);
  std::int64_t blocks = 0;
  for (const std::int64_t rows : out.layout.file_rows) blocks += (rows - 1) / out.layout.block + 1;
  const auto fits = std::int64_t(cache_bytes / 2 / out.block_bytes);
  out.layout.window = std::clamp<std::int64_t>(window > 0 ? (window - 1) / out.layout.block + 1 : fits, 1, blocks);
  if (chunks.rows == 0) return out;
  const std::uint64_t needed = std::uint64_t(std::min(2 * out.layout.window, blocks)) * out.block_bytes;
  if (needed > cache_bytes) {
    const std::uint64_t rounding = needed < (1u << 20) ? 1u << 10 : 1u << 20;
    const std::uint64_t enough = (needed + rounding - 1) / rounding * rounding;
    out.problem = fmt::format(
        "data.shuffle = block: two windows of {} blocks of {} rows are {} of decoded chunks, but data.chunk_cache "
        "keeps {}, so chunks are decoded more than once. raise data.chunk_cache to {}{}",
        out.layout.window, out.layout.block, format_bytes(needed), format_bytes(cache_bytes), print_bytes(enough),
        out.layout.window > 1 ? " or lower data.shuffle_window" : "");
  }
  for (const Shard& s : index.shards)
    if (out.problem.empty() && s.x_chunks && out.layout.block % s.x_chunks->chunk[0] != 0)
      out.problem = fmt::format(
          "data.shuffle = block: the chunks of {} hold {} rows, but blocks {}, so some chunks are decoded twice. set "
          "data.shuffle_block to a multiple of both",
          s.path, s.x_chunks->chunk[0], out.layout.block);
  return out;
}

std::string block_shuffle_advice(const ShardIndex& index, std::uint64_t cache_bytes) {
  const Chunks chunks = chunks_of(index);
  if (chunks.rows < min_rows_for_advice) return "";
  std::uint64_t bytes = 0;
  for (const Shard& s : index.shards) bytes += std::uint64_t((s.rows - 1) / chunks.rows + 1) * chunks.band_bytes;
  if (bytes <= cache_bytes) return "";
  return fmt::format(
      "data.shuffle = block would help: chunks of {} rows are {} when decoded, but a rank keeps only {}, and a random "
      "order over all samples decodes a chunk for nearly every row",
      chunks.rows, format_bytes(bytes), format_bytes(cache_bytes));
}

}  // namespace millrace
