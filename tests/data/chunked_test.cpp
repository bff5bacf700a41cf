// Chunked data sets that are read without the HDF5 library, compared with the library and with what was written.
#include <gtest/gtest.h>
#include <zlib.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "data/files.hpp"
#include "data/index/index_serialization.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/median.hpp"
#include "millrace/data/load/block_order.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"
#include "support/hdf5_filters.hpp"
#include "support/host_device.hpp"

namespace millrace {
namespace {

using test::ChunkedDataset;
using test::ChunkFilter;
using test::message_of;
using test::TemporaryFolder;
using test::write_filtered;

const std::string version = io::library_version();  // initializes HDF5 under its lock before this test calls it

struct Rows {
  std::string x, y;
  bool operator==(const Rows&) const = default;
};

Rows read(Source& source, const ShardIndex& d, const std::vector<std::int64_t>& ids) {
  Rows out{std::string(ids.size() * d.sample_bytes(), '?'),
           std::string(ids.size() * 4 * std::size_t(d.y.target.count()), '?')};
  source.read(ids, out.x.data(), out.y.data());
  return out;
}

std::string numbers(std::size_t bytes, std::uint64_t seed) {
  std::string out(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) out[i] = char(philox(seed, i / 3, 0).v[0] % 50);
  return out;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<std::int64_t> labels(std::int64_t rows) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r) out[std::size_t(r)] = r * r % 13;
  return out;
}

std::vector<std::int64_t> in_order(std::int64_t rows) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<std::int64_t> shuffled(std::int64_t rows) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
  Sampler(rows, rows, rows, 3, true).ids({0, 0, 0, rows}, ids.data());
  return ids;
}

TEST(Chunked, EveryFilterReadsAsHdf5ReadsIt) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  struct Shape {
    std::vector<hsize_t> sample, chunk;
  };
  // Chunks of complete rows, of parts of rows with edges, of many rows and of one; and chunks wider than the samples.
  const std::vector<Shape> shapes{
      {{5, 7, 3}, {4, 5, 7, 3}}, {{5, 7, 3}, {4, 2, 3, 3}}, {{5, 7, 3}, {64, 5, 4, 2}}, {{35}, {1, 35}}, {{35}, {7, 8}},
      {{9, 8}, {1, 1, 8}}};
  for (const ChunkFilter& filter : test::chunk_filters())
    for (const Shape& shape : shapes) {
      const hid_t type = shape.sample.size() == 3 ? H5T_IEEE_F32BE : H5T_STD_U8LE;
      SCOPED_TRACE(cat(filter.name, " of rank ", shape.sample.size(), ", ", H5Tget_size(type), " bytes"));
      std::vector<std::string> paths;
      std::int64_t first = 0;
      for (const std::int64_t rows : {23, 1, 13}) {  // chunked y, contiguous y, chunked y
        std::size_t values = std::size_t(rows);
        std::vector<hsize_t> full{hsize_t(rows)}, chunk = shape.chunk, y_chunk{8};
        for (const hsize_t e : shape.sample) {
          values *= std::size_t(e);
          full.push_back(e);
        }
        chunk[0] = std::min<hsize_t>(chunk[0], hsize_t(rows));  // HDF5 requires this
        if (rows == 1) y_chunk.clear();
        paths.push_back(folder / cat("part", paths.size(), ".h5"));
        const std::string x = numbers(values * H5Tget_size(type), std::uint64_t(first));
        write_filtered(
            paths.back(),
            {{"x", type, full, chunk, x}, {"y", H5T_STD_I64LE, {hsize_t(rows)}, y_chunk, bytes_of(labels(rows))}},
            filter, rows == 13);
        first += rows;
      }
      const ShardIndex d = index_shards(*world, {.paths = paths, .layout = Layout::channels_last});
      ASSERT_TRUE(readable_without_hdf5(d)) << describe_storage(d);
      const auto own = make_source(*world, d, Reader::automatic), hdf5 = make_source(*world, d, Reader::mpio);
      EXPECT_TRUE(own->describe().starts_with("direct: pread of chunks of ")) << own->describe();
      for (const auto& ids : {in_order(37), shuffled(37), {36}, {22, 23, 24}, {24, 22, 0, 22, 36}})
        ASSERT_EQ(read(*own, d, ids), read(*hdf5, d, ids));
    }
}

TEST(Chunked, ManyWorkersReadTheSameAsOne) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  const std::int64_t rows = 500;
  const std::string x = numbers(std::size_t(rows) * 60, 9);
  write_filtered(folder / "a.h5",
                 {{"x", H5T_STD_U8LE, {hsize_t(rows), 60}, {16, 32}, x},
                  {"y", H5T_STD_I64LE, {hsize_t(rows)}, {100}, bytes_of(labels(rows))}},
                 {"", [](hid_t p, unsigned) {
                    H5Pset_shuffle(p);
                    H5Pset_deflate(p, 1);
                  }});
  const ShardIndex d = index_shards(*world, {.paths = {folder / "a.h5"}});
  for (int round = 0; round < 20; ++round) {
    const auto source = make_source(*world, d, Reader::direct);
    const auto ids = round % 2 ? in_order(rows) : shuffled(rows);
    std::vector<std::thread> threads;
    std::atomic<int> next{0}, wrong{0};
    for (int w = 0; w < 4; ++w)
      threads.emplace_back([&] {
        for (int unit = next++; unit < 50; unit = next++) {
          const std::vector<std::int64_t> mine(ids.begin() + unit * 10, ids.begin() + unit * 10 + 10);
          const Rows got = read(*source, d, mine);
          for (std::size_t i = 0; i < mine.size(); ++i)
            wrong += got.x.compare(i * 60, 60, x, std::size_t(mine[i]) * 60, 60) != 0;
        }
      });
    for (auto& t : threads) t.join();
    ASSERT_EQ(wrong, 0);
  }
}

TEST(Chunked, DataThatOnlyHdf5DecodesIsReadThroughItAndTheDescriptionSaysWhy) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  write_filtered(
      folder / "a.h5",
      {{"x", H5T_STD_I32LE, {40, 3}, {8, 3}, numbers(480, 1)}, {"y", H5T_STD_I64LE, {40}, {}, bytes_of(labels(40))}},
      {"", [](hid_t p, unsigned) { H5Pset_scaleoffset(p, H5Z_SO_INT, 0); }});
  const ShardIndex d = index_shards(*world, {.paths = {folder / "a.h5"}});
  const auto source = make_source(*world, d, Reader::automatic);
  EXPECT_NE(source->describe().find("scaleoffset"), std::string::npos) << source->describe();
  EXPECT_EQ(read(*source, d, {7, 2}).x.substr(12), numbers(480, 1).substr(24, 12));
  const std::string message = message_of([&] { make_source(*world, d, Reader::direct); }, Exit::config);
  EXPECT_NE(message.find("a.h5:/x: only the HDF5 library can decode scaleoffset"), std::string::npos) << message;
}

TEST(Chunked, ErrorsNameFileAndRowOfADamagedChunkAndTruncation) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  const std::string path = folder / "a.h5";
  write_filtered(path,
                 {{"y", H5T_STD_I64LE, {40}, {}, bytes_of(labels(40))},
                  {"x", H5T_STD_U8LE, {40, 300}, {8, 300}, numbers(12000, 1)}},
                 {"", [](hid_t p, unsigned) {
                    H5Pset_deflate(p, 1);
                    H5Pset_fletcher32(p);
                  }});
  const ShardIndex d = index_shards(*world, {.paths = {path}});
  const auto source = make_source(*world, d, Reader::direct);
  const io::ChunkInfo chunk = d.shards[0].x_chunks->chunks.at(2);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(std::streamoff(chunk.offset + 10));
    file.put('!');
  }
  EXPECT_NO_THROW(read(*source, d, {15, 24}));
  for (int attempt = 0; attempt < 2; ++attempt) {  // a chunk that failed is not kept in the cache
    const std::string message = message_of([&] { read(*source, d, {15, 17}); });
    for (const char* words : {"row 17", "a.h5:x", "fletcher32", "write the file again"})
      EXPECT_NE(message.find(words), std::string::npos) << message;
  }
  std::filesystem::resize_file(path, d.shards[0].x_chunks->chunks.at(4).offset + 5);
  EXPECT_NE(message_of([&] { read(*source, d, {39}); }).find("truncated while in use"), std::string::npos);
}

// Ranks share the addresses of chunks. The index keeps the memory that holds them alive.
TEST(Chunked, AChunkTableIsStoredInTheMemoryThatTheCallerProvides) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  write_filtered(folder / "a.h5",
                 {{"y", H5T_STD_I64LE, {40}, {}, bytes_of(labels(40))},
                  {"x", H5T_STD_U8LE, {40, 300}, {8, 100}, numbers(12000, 1)}},
                 {"", [](hid_t p, unsigned) { H5Pset_deflate(p, 1); }});
  const ShardIndex d = index_shards(*world, {.paths = {folder / "a.h5"}});
  const auto& chunks = d.shards[0].x_chunks->chunks;
  ASSERT_EQ(chunks.size(), 15u);
  std::string tables;
  const std::string text = serialize_index(d, &tables), plain = d.shards.plain_bytes();
  ASSERT_EQ(tables.size(), 15 * sizeof(io::ChunkInfo));
  EXPECT_EQ(text.find(tables.substr(0, 16)), std::string::npos);
  const auto copy = [](const std::string& bytes) {
    std::shared_ptr<char> memory(new char[bytes.size()], std::default_delete<char[]>());
    std::memcpy(memory.get(), bytes.data(), bytes.size());
    return memory;
  };
  const auto shared = copy(tables);
  {
    const ShardIndex outside = deserialize_index(text, copy(plain), plain.size(), shared),
                     inside = deserialize_index(serialize_index(d), copy(plain), plain.size());
    EXPECT_GT(shared.use_count(), 1);
    const auto &given = outside.shards[0].x_chunks->chunks, &own = inside.shards[0].x_chunks->chunks;
    EXPECT_EQ(static_cast<const void*>(given.begin()), shared.get());
    for (std::size_t c = 0; c < 15; ++c) {
      EXPECT_EQ(given.at(c).offset, chunks[c].offset);
      EXPECT_EQ(own.at(c).bytes, chunks[c].bytes);
    }
    EXPECT_THROW(given.at(15), std::out_of_range);
  }
  EXPECT_EQ(shared.use_count(), 1);
}

// Two files of gzip chunks. A row has 60 values, and two chunks beside each other hold 16 rows.
ShardIndex files_of_chunks(const TemporaryFolder& folder) {
  for (const hsize_t rows : {530, 203})
    write_filtered(folder / cat(rows, ".h5"),
                   {{"x", H5T_STD_U8LE, {rows, 60}, {16, 32}, numbers(rows * 60, rows)},
                    {"y", H5T_STD_I64LE, {rows}, {}, bytes_of(labels(std::int64_t(rows)))}},
                   {"", [](hid_t p, unsigned) { H5Pset_deflate(p, 1); }});
  return index_shards(*solo_world(), {.paths = {folder / "530.h5", folder / "203.h5"}});
}

TEST(Chunked, BlockShuffleDecodesEachChunkOnceAnEpoch) {
  const TemporaryFolder folder;
  const ShardIndex d = files_of_chunks(folder);
  constexpr std::uint64_t band = 2 * 16 * 32, all_chunks = 2 * (34 + 13);
  const BlockShuffle blocks = block_shuffle(d, 0, 0, 9 * band);  // half of the cache holds four blocks
  EXPECT_EQ(blocks.str(), "blocks of 16 rows, windows of 4 blocks");
  EXPECT_EQ(blocks.problem, "");
  const auto order = std::make_shared<const BlockOrder>(blocks.layout, 5);
  const auto decoded = [&](const Sampler& sampler, int workers, std::int64_t epochs) {
    const auto world = solo_world();
    const auto source = make_source(*world, d, Reader::direct, {}, {8 * band, false}),
               reference = make_source(*world, d, Reader::direct);
    test::HostDevice device(true);
    std::int64_t step = 0;
    Loader loader(device, *source, d, sampler, {workers, 3, 13}, [&]() -> std::optional<MicroBatch> {
      if (step == epochs * sampler.steps_per_epoch()) return std::nullopt;
      const auto [epoch, at] = std::div(step++, sampler.steps_per_epoch());
      return sampler.share(epoch, at, 0, 1).front();
    });
    while (const Batch* b = loader.next()) {
      const auto* ids = b->ids.as<std::int64_t>();
      const Rows same = read(*reference, d, {ids, ids + b->item.rows});
      EXPECT_EQ(std::memcmp(b->x.data, same.x.data(), same.x.size()), 0);
    }
    return loader.stats().decoded.chunks;
  };
  for (const int workers : {0, 1, 3}) {
    EXPECT_EQ(decoded(Sampler(13, 13, order), workers, 1), all_chunks) << workers << " workers";
    EXPECT_LE(decoded(Sampler(13, 13, order), workers, 3),
              3 * all_chunks);  // an epoch may find chunks of the previous one in the cache
  }
  EXPECT_GT(decoded(Sampler(d.rows, 13, 13, 5, true), 1, 1), 5 * all_chunks);  // random over all samples
}

TEST(Chunked, BlockShuffleSaysWhatDoesNotFitIntoTheCache) {
  const TemporaryFolder folder;
  const ShardIndex d = files_of_chunks(folder);
  const BlockShuffle large = block_shuffle(d, 32, 100, 8 << 10);
  EXPECT_EQ(large.str(), "blocks of 32 rows, windows of 4 blocks");  // 100 rows, rounded up
  for (const char* words : {"are 16.00 KiB of decoded chunks", "keeps 8.00 KiB", "raise data.chunk_cache to 16KiB",
                            "or lower data.shuffle_window"})
    EXPECT_NE(large.problem.find(words), std::string::npos) << large.problem;
  EXPECT_EQ(block_shuffle(d, 32, 100, 16 << 10).problem, "");
  EXPECT_EQ(block_shuffle(d, 0, 1 << 20, 1 << 20).layout.window, 47);  // all blocks of the data set
  EXPECT_NE(message_of([&] { block_shuffle(d, 40, 0, 1 << 20); }, Exit::config).find("not a multiple of the 16 rows"),
            std::string::npos);
  const std::string advice = block_shuffle_advice(d, 16 << 10);
  EXPECT_NE(advice.find("chunks of 16 rows are 47.00 KiB when decoded"), std::string::npos) << advice;
  EXPECT_EQ(block_shuffle_advice(d, 1 << 20), "");
}

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

}  // namespace
}  // namespace millrace
