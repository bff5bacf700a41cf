// Block shuffle of chunked data sets: its blocks are chunks, and its windows fit into the cache of decoded chunks.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "data/chunks.hpp"
#include "data/read_rows.hpp"
#include "millrace/data/load/block_order.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "support/hdf5_filters.hpp"
#include "support/host/device.hpp"

namespace millrace {
namespace chunked_shuffle_test {

using test::bytes_of;
using test::labels;
using test::message_of;
using test::numbers;
using test::read_rows;
using test::ReadRows;
using test::TemporaryFolder;
using test::write_filtered;

// Two files of gzip chunks. A row has 60 values, and two chunks beside each other hold 16 rows.
ShardIndex files_of_chunks(const TemporaryFolder& folder) {
  for (const hsize_t rows : {530, 203})
    write_filtered(folder / fmt::format("{}.h5", rows),
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
      const ReadRows same = read_rows(*reference, d, {ids, ids + b->item.rows});
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

}  // namespace chunked_shuffle_test
}  // namespace millrace
