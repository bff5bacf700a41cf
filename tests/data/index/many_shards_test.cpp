// Data sets of very many files: the list of shards, the manifest cache, and the search for a sample.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "data/files.hpp"
#include "millrace/base/permutation.hpp"
#include "millrace/comm/node_memory.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "support/faulty_files.hpp"

namespace millrace {
namespace many_shards_test {

using test::message_of;
using test::TemporaryFolder;

std::vector<std::uint8_t> image(std::int64_t number) {
  std::vector<std::uint8_t> out(48);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::uint8_t(std::size_t(number) * 48 + i * 37);
  return out;
}

// Writes images; image i has the label i. `chunk` is the chunk shape of x, which is contiguous if it is empty.
void write_images(const std::string& path, std::int64_t rows, const std::vector<hsize_t>& chunk = {}) {
  std::vector<std::uint8_t> x;
  std::vector<std::int64_t> y;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto one = image(r);
    x.insert(x.end(), one.begin(), one.end());
    y.push_back(r);
  }
  test::write_file(path, {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {hsize_t(rows), 4, 4, 3}, x.data(), chunk},
                          {"y", H5T_STD_I64LE, H5T_NATIVE_INT64, {hsize_t(rows)}, y.data()}});
}

ShardIndex index_of(const DataOptions& options) { return index_shards(*solo_world(), options); }

// 10^10 samples in 10^6 files: memory per rank, and the search for a sample. With the thread sanitizer a tenth of the
// files is used, because it makes strings twenty times slower and nothing here uses threads.
#ifdef __SANITIZE_THREAD__
constexpr std::int64_t most_files = 100'000;
#else
constexpr std::int64_t most_files = 1'000'000;
#endif
TEST(ManyShards, TenBillionSamplesNeedLittleMemory) {
  constexpr std::int64_t files = most_files, rows_each = 10'000;
  ShardList built;
  Shard shard;
  shard.rows = rows_each;
  shard.x_offset = 4096;
  shard.file_bytes = 1 << 30;
  for (std::int64_t f = 0; f < files; ++f) {
    shard.path = fmt::format("/data/folder-{}/train-{}.h5", f / 1000, 1'000'000 + f);
    shard.first = f * rows_each;
    built.push_back(shard);
  }
  const std::string bytes = built.plain_bytes();
  EXPECT_LT(bytes.size(), 76u * files);
  const std::shared_ptr<char> memory(new char[bytes.size()], std::default_delete<char[]>());
  std::copy(bytes.begin(), bytes.end(), memory.get());
  built = {};
  const ShardList list = ShardList::from_plain_bytes(memory, bytes.size(), {});
  ASSERT_EQ(list.size(), std::size_t(files));

  const Sampler sampler(files * rows_each, 4096, 256, 3, true);
  const Permutation order(3, 5, std::uint64_t(files * rows_each));
  std::vector<std::int64_t> ids(256);
  for (const std::int64_t step : {std::int64_t(0), sampler.steps_per_epoch() / 2, sampler.steps_per_epoch() - 2}) {
    const auto share = sampler.share(5, step, 1, 3);
    sampler.ids(share.front(), ids.data());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_GE(ids[i], 0);
      ASSERT_LT(ids[i], files * rows_each);
      ASSERT_EQ(order.position_of(std::uint64_t(ids[i])), std::uint64_t(share.front().first) + i);
      const std::size_t s = list.shard_with(ids[i]);
      ASSERT_EQ(std::int64_t(s), ids[i] / rows_each);
      const Shard found = list[s];
      ASSERT_EQ(found.first, std::int64_t(s) * rows_each);
      ASSERT_EQ(found.path, fmt::format("/data/folder-{}/train-{}.h5", s / 1000, 1'000'000 + s));
    }
  }
}

TEST(ManyShards, RanksOfANodeShareTheList) {
  const std::string bytes(300'000, 'b');
  run_thread_world(3, [&](World& world) {
    const NodeMemory small = node_copy(world, world.rank() == 0 ? "few bytes" : "");
    EXPECT_EQ(std::string(small.data.get(), small.bytes), "few bytes");
    const NodeMemory large = node_copy(world, world.rank() == 0 ? bytes : "");
    EXPECT_TRUE(large.shared);
    EXPECT_EQ(std::string(large.data.get(), large.bytes), bytes);
    const NodeMemory board = node_memory(world, 5000);
    board.data.get()[4096 + world.rank()] = char('1' + world.rank());
    world.barrier();
    EXPECT_EQ(std::string(board.data.get() + 4095, 5), std::string("\0"
                                                                   "123\0",
                                                                   5));
    world.barrier();
  });
}

// Copies of one file, written some time ago.
struct ManyFiles {
  TemporaryFolder folder;
  std::vector<std::string> paths;
  explicit ManyFiles(int count) {
    write_images(folder / "one.h5", 3);
    const std::string content = test::content(folder / "one.h5");
    std::filesystem::create_directory(folder / "set");
    for (int i = 0; i < count; ++i) {
      paths.push_back(folder / fmt::format("set/m-{}.h5", 10000 + i));
      std::ofstream(paths.back(), std::ios::binary) << content;
      settle(paths.back());
    }
  }
  static void settle(const std::string& path) {
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(100));
  }
  DataOptions options() const {
    DataOptions out{.paths = {folder / "set/m-*.h5"}};
    out.faults.retries = 0;  // the failures are permanent
    return out;
  }
  std::string cache() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder / "set"))
      if (entry.path().filename().string().starts_with(".millrace-manifest-")) return entry.path();
    return "";
  }
};
// Makes it impossible to open any file.
std::vector<test::Fault> none_opens(const std::string& but = "m-1") {
  return {{.file = but, .error = EIO, .opening = true}};
}

TEST(ManyShards, TheSecondStartComparesOnlySizesAndTimes) {
  const ManyFiles set(2000);
  const ShardIndex first = index_of(set.options());
  ASSERT_NE(set.cache(), "");
  EXPECT_EQ(first.rows, 6000);
  const test::Faults faults(none_opens());
  const ShardIndex second = index_of(set.options());
  EXPECT_EQ(second.manifest_crc, first.manifest_crc);
  EXPECT_TRUE(second.shards.plain_bytes() == first.shards.plain_bytes());
  EXPECT_EQ(second.sample, first.sample);
  EXPECT_EQ(second.classes.count, first.classes.count);
  EXPECT_EQ(second.x.layout_decided_by, first.x.layout_decided_by);
  DataOptions off = set.options();
  off.manifest_cache = false;
  message_of([&] { index_of(off); });
  DataOptions other = set.options();
  other.layout = Layout::channels_first;  // the metadata of a file depend on it
  message_of([&] { index_of(other); });
}

TEST(ManyShards, StaleOrDamagedCacheEntriesAreNotUsed) {
  const ManyFiles set(80);
  index_of(set.options());
  write_images(set.paths[7], 5);  // two rows more
  write_images(set.paths[8], 3);  // the same size, another time
  EXPECT_EQ(index_of(set.options()).rows, 242);
  {
    const test::Faults faults(none_opens("m-10008"));
    message_of(
        [&] { index_of(set.options()); });  // modified just now: it may change again within the resolution of the clock
  }
  ManyFiles::settle(set.paths[7]);
  ManyFiles::settle(set.paths[8]);
  EXPECT_EQ(index_of(set.options()).rows, 242);
  {
    const test::Faults faults(none_opens());
    EXPECT_EQ(index_of(set.options()).rows, 242);
  }
  std::filesystem::remove(set.paths[9]);  // one file less
  EXPECT_EQ(index_of(set.options()).rows, 239);
  std::fstream(set.cache(), std::ios::in | std::ios::out | std::ios::binary).seekp(2000).put('!');
  testing::internal::CaptureStderr();
  EXPECT_EQ(index_of(set.options()).rows, 239);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("is damaged"), std::string::npos) << said;
  std::filesystem::resize_file(set.cache(), 15);
  EXPECT_EQ(index_of(set.options()).rows, 239);
  const test::Faults faults(none_opens());
  EXPECT_EQ(index_of(set.options()).rows, 239) << "the cache was written again";
}

TEST(ManyShards, AReadOnlyFolderMovesTheCacheToTheUser) {
  const ManyFiles set(64);
  const TemporaryFolder home;
  ::setenv("XDG_CACHE_HOME", home.path.c_str(), 1);
  {
    const test::Faults faults({{.file = "set/.millrace-manifest-", .error = EACCES, .opening = true}});
    index_of(set.options());
  }
  EXPECT_EQ(set.cache(), "");
  const test::Faults faults(none_opens());
  EXPECT_EQ(index_of(set.options()).rows, 192);
  ::unsetenv("XDG_CACHE_HOME");
}

TEST(ManyShards, TheCacheHoldsChunksToo) {
  const TemporaryFolder folder;
  for (int f = 0; f < 70; ++f) {
    const std::string path = folder / fmt::format("m-{}.h5", 100 + f);
    write_images(path, 6, {2, 4, 4, 3});
    ManyFiles::settle(path);
  }
  const DataOptions options{.paths = {folder / "m-*.h5"}};
  index_of(options);
  ShardIndex d;
  {
    const test::Faults faults(none_opens());
    d = index_of(options);
  }
  const auto world = solo_world();
  const auto source = make_source(*world, d, Reader::direct);
  std::vector<std::uint8_t> x(48);
  std::int32_t y = 0;
  for (const std::int64_t id : {0, 5, 413, 419}) {
    source->read({&id, 1}, x.data(), &y);
    EXPECT_EQ(x, image(id % 6));
    EXPECT_EQ(y, id % 6);
  }
}

}  // namespace many_shards_test
}  // namespace millrace
