#include "bench/stored_pieces.hpp"

#include <initializer_list>

#include "millrace/data/read/encoded_rows.hpp"
#include "millrace/data/read/view_hyperslabs.hpp"

namespace millrace {
namespace {

using PieceFunction = std::function<void(const StoredPiece&)>;

void for_each_piece_of_slab(const ShardIndex& index, const Shard& shard, const Hyperslab& slab,
                            const PieceFunction& f) {
  if (const io::ChunkedLayout* chunks = shard.x_chunks.get())
    return for_each_chunk(*chunks, slab, [&](std::size_t number, const Hyperslab&) {
      f({chunks->chunks[number].offset, chunks->chunks[number].bytes, chunks, number});
    });
  const std::size_t value = size_of(index.x.dtype);
  for_each_run(shard.array, slab, [&](std::int64_t offset, std::int64_t count) {
    f({shard.x_offset + std::uint64_t(offset) * value, std::size_t(count) * value});
  });
}

void for_each_piece_of_view(const ShardIndex& index, const Shard& shard, std::int64_t id, const PieceFunction& f) {
  const std::int64_t row = id - shard.first;
  switch (index.view.sample) {
    case SampleKind::patch:
      return for_each_piece_of_slab(index, shard, patch_hyperslab(index, shard, id), f);
    case SampleKind::tokens:
      return for_each_piece_of_slab(index, shard, window_hyperslab(index, shard, id), f);
    case SampleKind::pair:
      for (const std::int64_t r : {row, row + index.view.lead})
        for_each_piece_of_slab(index, shard, row_hyperslab(shard, r), f);
      return;
    case SampleKind::rows:
      break;
  }
}

void for_each_piece_of_row(const io::ChunkedLayout* chunks, std::uint64_t offset, std::size_t bytes, std::int64_t row,
                           const PieceFunction& f) {
  if (!chunks) return f({offset + std::uint64_t(row) * bytes, bytes});
  std::size_t sides = 1;  // number of chunks that hold the same rows
  for (std::size_t d = 1; d < chunks->shape.size(); ++d) sides *= std::size_t(chunks->chunks_along(d));
  for (std::size_t c = std::size_t(row / chunks->chunk[0]) * sides, end = c + sides; c < end; ++c)
    f({chunks->chunks[c].offset, chunks->chunks[c].bytes, chunks, c});
}

}  // namespace

void for_each_piece(const ShardIndex& index, ShardFiles& files, std::size_t s, std::int64_t id,
                    const PieceFunction& f) {
  const Shard shard = index.shards[s];
  if (shard.x_encoded) {
    const EncodedRow e = encoded_row(files.open(s), shard, id);
    return f({e.offset, e.bytes});
  }
  if (index.samples_are_views()) return for_each_piece_of_view(index, shard, id, f);
  const std::int64_t row = id - shard.first;
  const std::size_t parts = index.x.parts.size();
  if (parts == 0) return for_each_piece_of_row(shard.x_chunks.get(), shard.x_offset, index.sample_bytes(), row, f);
  const std::size_t channel = index.sample_bytes() / std::size_t(index.sample[-1]);
  for (std::size_t p = 0; p < parts; ++p) {
    const DatasetLocation* extra = p ? &shard.extra_x[p - 1] : nullptr;
    for_each_piece_of_row((extra ? extra->chunks : shard.x_chunks).get(), extra ? extra->offset : shard.x_offset,
                          std::size_t(index.x.parts[p].count) * channel, row, f);
  }
}

}  // namespace millrace
