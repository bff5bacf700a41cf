#include "data/pack/chunked_shard.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/data/index/row_checksums.hpp"

namespace millrace {
namespace {

constexpr std::size_t buffer_bytes = 64u << 20;  // rows that a rank reads at a time

// Calls function(0) ... function(count - 1) on several threads. Rethrows the exception of one of them.
template <class F>
void in_parallel(std::size_t count, std::size_t threads, const F& function) {
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> failed(std::min(threads, count));
  const auto work = [&](std::size_t thread) {
    try {
      for (std::size_t i = next++; i < count; i = next++) function(i);
    } catch (...) {
      failed[thread] = std::current_exception();
    }
  };
  std::vector<std::jthread> helpers;
  for (std::size_t t = 1; t < failed.size(); ++t) helpers.emplace_back(work, t);
  if (count > 0) work(0);
  helpers.clear();  // joins them
  for (const auto& failure : failed)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::uint64_t write_chunked_shard(World& world, const std::filesystem::path& path, const ChunkedShard& shard) {
  world.agree(Exit::data, world.rank() == 0 ? message_of([&] {
                io::File file = io::File::create(path);
                shard.describe(file);
                file.close();
              })
                                            : "");
  const std::int64_t rows = shard.rows, chunk_rows = std::min(shard.chunk_rows, rows);
  const std::int64_t chunks = (rows + chunk_rows - 1) / chunk_rows;
  const std::int64_t first = chunks * world.rank() / world.size(), last = chunks * (world.rank() + 1) / world.size();
  const std::size_t chunk_bytes = std::size_t(chunk_rows) * shard.x_bytes;
  const std::int64_t round = std::max<std::int64_t>(1, std::int64_t(buffer_bytes / chunk_bytes));
  const std::int64_t max_chunks = (chunks + world.size() - 1) / world.size();
  const std::size_t threads = std::max(1u, std::thread::hardware_concurrency() / unsigned(world.local_size()));
  std::vector<char> x, y;
  std::vector<io::ByteBuffer> stored(std::size_t(std::min(round, max_chunks)));
  std::uint64_t written = 0;
  for (std::int64_t r = 0; r * round < max_chunks; ++r) {
    const std::int64_t chunk = std::min(last, first + r * round), end = std::min(last, chunk + round);
    const std::int64_t row = chunk * chunk_rows, row_count = std::min(rows, end * chunk_rows) - std::min(rows, row);
    world.agree(Exit::data, message_of([&] {
                  if (row_count == 0) return;
                  x.resize(std::size_t(end - chunk) * chunk_bytes);
                  y.resize(std::size_t(row_count) * shard.y_bytes);
                  shard.read(row, row_count, x.data(), y.data());
                  const std::size_t used = std::size_t(row_count) * shard.x_bytes;
                  std::memset(x.data() + used, 0, x.size() - used);  // the part of the last chunk behind the last row
                  in_parallel(std::size_t(end - chunk), threads, [&](std::size_t i) {
                    io::encode_chunk(shard.codec, x.data() + i * chunk_bytes, chunk_bytes, stored[i]);
                  });
                }));
    for (int writer = 0; writer < world.size(); ++writer) {
      std::string problem;
      if (writer == world.rank() && row_count > 0)
        problem = message_of([&] {
          io::File file = io::File::append(path);
          for (std::int64_t c = chunk; c < end; ++c) file.write_chunk("/x", c, stored[std::size_t(c - chunk)]);
          file.write_rows("/y", row, row_count, shard.y_dtype, y.data());
          const auto sums = row_checksums(x.data(), shard.x_bytes, y.data(), shard.y_bytes, row_count);
          file.write_rows(row_checksums_name, row, row_count, DType::i32, sums.data());
          written += file.bytes_written();
          file.close();
        });
      world.agree(Exit::data, problem);
    }
  }
  return written;
}

}  // namespace millrace
