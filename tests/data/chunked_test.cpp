// Chunked data sets that are read without the HDF5 library, compared with the library and with what was written.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "data/chunks.hpp"
#include "data/index/index_serialization.hpp"
#include "data/read_rows.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "support/hdf5_filters.hpp"

namespace millrace {
namespace chunked_test {

using test::bytes_of;
using test::ChunkFilter;
using test::in_order;
using test::labels;
using test::message_of;
using test::numbers;
using test::read_rows;
using test::ReadRows;
using test::shuffled;
using test::TemporaryFolder;
using test::write_filtered;

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
      SCOPED_TRACE(fmt::format("{} of rank {}, {} bytes", filter.name, shape.sample.size(), H5Tget_size(type)));
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
        paths.push_back(folder / fmt::format("part{}.h5", paths.size()));
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
        ASSERT_EQ(read_rows(*own, d, ids), read_rows(*hdf5, d, ids));
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
          const ReadRows got = read_rows(*source, d, mine);
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
  EXPECT_EQ(read_rows(*source, d, {7, 2}).x.substr(12), numbers(480, 1).substr(24, 12));
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
  EXPECT_NO_THROW(read_rows(*source, d, {15, 24}));
  for (int attempt = 0; attempt < 2; ++attempt) {  // a chunk that failed is not kept in the cache
    const std::string message = message_of([&] { read_rows(*source, d, {15, 17}); });
    for (const char* words : {"row 17", "a.h5:x", "fletcher32", "write the file again"})
      EXPECT_NE(message.find(words), std::string::npos) << message;
  }
  std::filesystem::resize_file(path, d.shards[0].x_chunks->chunks.at(4).offset + 5);
  EXPECT_NE(message_of([&] { read_rows(*source, d, {39}); }).find("truncated while in use"), std::string::npos);
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

}  // namespace chunked_test
}  // namespace millrace
