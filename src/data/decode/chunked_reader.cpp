// A band is the set of chunks that hold the same rows: one chunk, or several side by side. A row occupies a few runs of
// bytes within a chunk, the same for all rows.
#include "millrace/data/decode/chunked_reader.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "data/index/read_error.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

struct Run {
  std::size_t from, to, bytes;  // offsets in the chunk's part of a row and in the whole row; length
};

// Finds the runs of the chunk number `side` of a band.
void find_runs(const io::ChunkedLayout& l, std::size_t side, std::vector<Run>& runs) {
  const std::size_t rank = l.shape.size();
  std::vector<std::size_t> extent(rank, 1), index(rank, 0), from_stride(rank, 0), to_stride(rank, 0);
  std::size_t from_bytes = l.element_bytes, to_bytes = l.element_bytes, to = 0;
  for (std::size_t d = rank; d-- > 1;) {
    const auto along = std::size_t(l.chunks_along(d));
    const std::int64_t first = std::int64_t(side % along) * l.chunk[d];
    side /= along;
    extent[d] = std::size_t(std::min(l.chunk[d], l.shape[d] - first));
    from_stride[d] = from_bytes;
    to_stride[d] = to_bytes;
    from_bytes *= std::size_t(l.chunk[d]);
    to_bytes *= std::size_t(l.shape[d]);
    to += std::size_t(first) * to_stride[d];
  }
  std::size_t bytes = l.element_bytes, outer = rank;  // dimensions [outer, rank) are one run
  while (outer > 1) {
    --outer;
    bytes *= extent[outer];
    if (std::int64_t(extent[outer]) != l.chunk[outer] || l.chunk[outer] != l.shape[outer]) break;
  }
  runs.clear();
  std::size_t from = 0;
  for (bool more = true; more;) {
    runs.push_back({from, to, bytes});
    more = false;
    for (std::size_t d = outer; d-- > 1 && !more;) {
      from += from_stride[d];
      to += to_stride[d];
      more = ++index[d] < extent[d];
      if (more) break;
      from -= extent[d] * from_stride[d];
      to -= extent[d] * to_stride[d];
      index[d] = 0;
    }
  }
}

void read_stored(int fd, const io::ChunkInfo& info, io::ByteBuffer& raw) {
  raw.resize_uninitialized(info.bytes);
  for (std::size_t done = 0; done < info.bytes;) {
    const ssize_t n = ::pread(fd, raw.data() + done, info.bytes - done, off_t(info.offset + done));
    if (n > 0) done += std::size_t(n);
    if (n == 0) fail(Exit::data, "the file ends within it: truncated while in use");
    if (n < 0 && errno != EINTR) throw ReadError(std::strerror(errno), errno);
  }
}

}  // namespace

ChunkCache::Chunk ChunkedReader::chunk(const ChunkedDataset& from, std::size_t number, bool wait, std::int64_t row) {
  return cache_.get(from.key << 40 | number, wait, [&](io::ByteBuffer& out) {
    const io::ChunkInfo& info = from.layout.chunks[number];
    if (info.bytes == 0) return io::fill_chunk(from.layout, out);
    thread_local io::ByteBuffer raw;
    try {
      read_stored(from.fd, info, raw);
      const BusyClock::Scope busy(decoding_);
      io::decode_chunk(from.layout, number, raw, out);
    } catch (const Error& e) {
      throw ReadError(
          fmt::format("cannot read row {} of {} (the chunk of {} bytes at byte {}: {}). copy or write the file again",
                      row, from.place, info.bytes, info.offset, e.what()),
          system_error_of(e));
    }
  });
}

void ChunkedReader::read(const ChunkedDataset& from, std::span<const Row> rows, bool ahead) {
  if (rows.empty()) return;
  const io::ChunkedLayout& l = from.layout;
  std::size_t sides = 1, part_bytes = l.element_bytes;  // chunks per band; bytes of a row in one chunk
  for (std::size_t d = 1; d < l.shape.size(); ++d) {
    sides *= std::size_t(l.chunks_along(d));
    part_bytes *= std::size_t(l.chunk[d]);
  }
  struct Part {
    std::size_t chunk, side;
    std::span<const Row> rows;
  };
  thread_local std::vector<Run> runs;
  std::size_t runs_side = SIZE_MAX;  // the side that `runs` belongs to
  const auto copy = [&](const Part& part, const io::ByteBuffer& chunk) {
    if (part.side != runs_side) find_runs(l, runs_side = part.side, runs);
    for (const Row& r : part.rows) {
      const char* at = chunk.data() + std::size_t(r.row % l.chunk[0]) * part_bytes;
      for (const Run& run : runs) std::memcpy(r.to + run.to, at + run.from, run.bytes);
    }
  };

  thread_local std::vector<Part> busy;  // chunks that other threads decode: they are copied last, when most are ready
  busy.clear();
  const std::size_t behind =
      std::size_t(rows.back().row / l.chunk[0] + 1) * sides;  // the first chunk of the band behind the last row
  while (!rows.empty()) {
    const std::int64_t band = rows[0].row / l.chunk[0];
    std::size_t count = 1;
    while (count < rows.size() && rows[count].row / l.chunk[0] == band) ++count;
    for (std::size_t side = 0; side < sides; ++side) {
      const Part part{std::size_t(band) * sides + side, side, rows.first(count)};
      if (const auto ready = chunk(from, part.chunk, false, rows[0].row))
        copy(part, *ready);
      else
        busy.push_back(part);
    }
    rows = rows.subspan(count);
  }
  for (const Part& part : busy) {
    if (ahead && behind + part.side < l.chunks.size())
      chunk(from, behind + part.side, false, std::int64_t(behind / sides) * l.chunk[0]);
    copy(part, *chunk(from, part.chunk, true, part.rows[0].row));
  }
}

}  // namespace millrace
