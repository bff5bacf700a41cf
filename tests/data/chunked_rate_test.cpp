// The rate at which workers decode chunks, compared with zlib alone.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "data/chunks.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/median.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "support/hdf5_filters.hpp"

namespace millrace {
namespace chunked_rate_test {

using test::bytes_of;
using test::labels;
using test::TemporaryFolder;
using test::write_filtered;

// Bytes that gzip compresses well, but not to nothing.
std::string compressible(std::size_t bytes) {
  std::string out(bytes, '\0');
  for (std::size_t i = 0, state = 1; i < bytes; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    out[i] = char((state >> 40) % 24 * (i / 7 % 3));
  }
  return out;
}

double seconds_of_threads(int count, const std::function<void(int)>& work) {
  const double began = steady_seconds();
  std::vector<std::thread> threads;
  for (int w = 0; w < count; ++w) threads.emplace_back([&, w] { work(w); });
  for (auto& t : threads) t.join();
  return steady_seconds() - began;
}

// 16 MiB (64 with MILLRACE_BENCH) in gzip chunks of 16 rows of 64 KiB. The source reads them in order, in units of 4
// rows, as the workers of the loader do. The bound is zlib alone on the same chunks with as many threads. Both are
// measured in the same round, because other programs use the machine too. Rounds are added until one comes near the
// bound.
TEST(ChunkedRate, WorkersInflateInParallelAtTheRateOfZlib) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "zlib is not instrumented but the source is, so their rates cannot be compared";
#endif
  const TemporaryFolder folder;
  const auto world = solo_world();
  const hsize_t rows = std::getenv("MILLRACE_BENCH") ? 1024 : 256;
  const std::size_t rounds = std::getenv("MILLRACE_BENCH") ? 15 : 3;
  constexpr hsize_t row_bytes = 64 << 10, chunk_rows = 16;
  write_filtered(folder / "a.h5",
                 {{"x", H5T_STD_U8LE, {rows, row_bytes}, {chunk_rows, row_bytes}, compressible(rows * row_bytes)},
                  {"y", H5T_STD_I64LE, {rows}, {}, bytes_of(labels(rows))}},
                 {"", [](hid_t p, unsigned) { H5Pset_deflate(p, 4); }});
  const ShardIndex d = index_shards(*world, {.paths = {folder / "a.h5"}});
  const std::string file = test::content(folder / "a.h5");
  const auto& chunks = d.shards[0].x_chunks->chunks;
  const auto zlib_seconds = [&](int workers) {
    return seconds_of_threads(workers, [&](int w) {
      std::vector<Bytef> out(chunk_rows * row_bytes);
      for (std::size_t c = std::size_t(w); c < chunks.size(); c += std::size_t(workers)) {
        uLongf size = out.size();
        const auto* from = reinterpret_cast<const Bytef*>(&file[chunks[c].offset]);
        ASSERT_EQ(uncompress(out.data(), &size, from, chunks[c].bytes), Z_OK);
      }
    });
  };
  const auto source_seconds = [&](int workers) {
    const auto source = make_source(*world, d, Reader::direct);
    std::atomic<std::int64_t> next{0};
    return seconds_of_threads(workers, [&](int) {
      std::string to(4 * row_bytes, '\0'), y(16, '\0');
      for (std::int64_t row = next.fetch_add(4); row < std::int64_t(rows); row = next.fetch_add(4)) {
        const std::int64_t ids[4] = {row, row + 1, row + 2, row + 3};
        source->read(ids, to.data(), y.data());
      }
    });
  };
  for (const int workers : {1, 2}) {
    std::vector<double> ratios, speedups;  // of the source: to zlib with as many threads, to zlib with one
    double best = 1e300;
    const auto near = [&] { return std::any_of(ratios.begin(), ratios.end(), [](double r) { return r > 0.6; }); };
    while (ratios.size() < rounds || (ratios.size() < 20 && !near())) {
      const double one = zlib_seconds(1), same = zlib_seconds(workers), own = source_seconds(workers);
      ratios.push_back(same / own);
      speedups.push_back(one / own);
      best = std::min(best, own);
    }
    EXPECT_TRUE(near()) << "workers " << workers << ": under 60 % of zlib's rate in each of " << ratios.size()
                        << " rounds";
    std::printf(
        "gzip chunks, workers %d: up to %.0f MB/s; medians: %.2f x zlib on one core, %.0f %% of zlib with as "
        "many threads\n",
        workers, double(rows * row_bytes) / 1e6 / best, median(speedups), 100 * median(ratios));
  }
}

}  // namespace chunked_rate_test
}  // namespace millrace
