// The node-local cache: samples are the same whatever is copied, and no fault of a copy or of its folder ends a run.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>

#include "data/raw_set.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/data/cache/describe_copies.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/source.hpp"
#include "support/faulty_files.hpp"

namespace millrace {
namespace local_cache_test {

using test::Faults;
using test::message_of;
using test::RawSet;
using test::TemporaryFolder;
namespace fs = std::filesystem;

constexpr std::int64_t sample_bytes = 3000, rows = 90;
constexpr int eio = 5;

// Three files. After 30 labels, the first sample begins a page; no later one does.
struct Set : RawSet {
  Set() : RawSet(sample_bytes, {30, 20, 40}, 4096 - 4 * 30) {}
  std::uint64_t bytes_of(std::size_t s) const { return index.shards[s].file_bytes; }
  std::uint64_t bytes() const { return bytes_of(0) + bytes_of(1) + bytes_of(2); }
};

// Reads all samples in a random order, a few at a time.
void expect_epoch(const Set& set, Source& source, std::uint64_t seed) {
  std::vector<std::int64_t> ids(rows);
  std::iota(ids.begin(), ids.end(), 0);
  for (std::size_t i = ids.size(); i-- > 1;) std::swap(ids[i], ids[philox(seed, 7, i).v[0] % (i + 1)]);
  std::vector<char> x(6 * sample_bytes);
  std::vector<std::int32_t> y(6);
  const auto reads = source.make_read_queue(x);
  for (std::size_t i = 0; i < ids.size(); i += 6) {
    const std::span<const std::int64_t> some(ids.data() + i, std::min<std::size_t>(6, ids.size() - i));
    reads->begin(some, x.data(), y.data());
    reads->finish();
    set.expect(some, x.data(), y.data(), source.describe());
  }
}

// Waits until done() is true, up to a minute on a busy machine.
bool wait_for(const std::function<bool()>& done) {
  for (int polls = 0; polls < 6000 && !done(); ++polls) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return done();
}
bool all_copied(const Source& source) {
  return wait_for([&] { return source.staging().files_staged == source.staging().files; });
}

std::unique_ptr<Source> cached_source(World& world, const Set& set, const std::string& where, std::uint64_t budget = 0,
                                      Reader reader = Reader::direct) {
  FaultOptions faults;
  faults.retries = 0;
  return make_source(world, set.index, reader, faults, {}, {where, budget});
}

// A complete run on one rank.
LocalCacheStats run(const Set& set, const std::string& where) {
  const auto world = solo_world();
  const auto source = cached_source(*world, set, where);
  expect_epoch(set, *source, 1);
  EXPECT_TRUE(all_copied(*source));
  expect_epoch(set, *source, 2);
  return source->staging();
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path());
  return out;
}
fs::path copy_of(const TemporaryFolder& cache, const std::string& name) {
  for (const fs::path& path : files_in(cache.path / "millrace-cache"))
    if (path.filename().string().ends_with("-" + name)) return path;
  ADD_FAILURE() << "no copy of " << name;
  return {};
}
int folders_in_memory() {
  int count = 0;
  const std::string mine = fmt::format("millrace-cache-{}-{}-", int(getuid()), int(getpid()));
  for (const fs::path& path : files_in("/dev/shm")) count += path.filename().string().starts_with(mine);
  return count;
}

TEST(LocalCache, SamplesAreTheSameAndComeFromTheCopiesOnceTheyAreComplete) {
  const Set set;
  for (const int ranks : {1, 2})
    for (const char* where : {"memory", "folder"})
      for (const Reader reader : {Reader::direct, Reader::mmap, Reader::uring}) {
        const TemporaryFolder cache;
        if (reader == Reader::uring && !reader_facts(set.index).no_direct_io.empty()) continue;
        run_thread_world(ranks, [&](World& world) {
          const std::string folder = world.broadcast_string(cache.path.string());
          const auto source = cached_source(world, set, where == std::string("memory") ? where : folder, 0, reader);
          expect_epoch(set, *source, 1);
          ASSERT_TRUE(all_copied(*source)) << where;
          world.barrier();
          const LocalCacheStats before = source->staging();
          {
            const Faults unreadable(world.rank() == 0 ? std::vector<test::Fault>{{"/raw", 0, 1 << 30, eio}}
                                                      : std::vector<test::Fault>{});
            world.barrier();
            expect_epoch(set, *source, 2);
            world.barrier();
          }
          const LocalCacheStats after = source->staging();
          EXPECT_EQ(after.samples_from_copies - before.samples_from_copies, std::uint64_t(rows));
          std::int64_t copied = std::int64_t(after.bytes_copied);
          world.all_reduce(std::span<std::int64_t>(&copied, 1), World::Reduce::sum);
          EXPECT_EQ(copied, std::int64_t(set.bytes())) << "once a node";
        });
        EXPECT_EQ(folders_in_memory(), 0);
      }
}

TEST(LocalCache, TheNextRunReusesTheCopiesAndReplacesDamagedAndOldOnes) {
  const Set set;
  const TemporaryFolder cache;
  EXPECT_EQ(run(set, cache.path).bytes_copied, set.bytes());
  LocalCacheStats again = run(set, cache.path);
  EXPECT_EQ(again.bytes_copied, 0u);
  EXPECT_EQ(again.bytes_reused, set.bytes());

  std::fstream(copy_of(cache, "raw1"), std::ios::in | std::ios::out | std::ios::binary).seekp(9000).put('!');
  EXPECT_EQ(run(set, cache.path).bytes_copied, set.bytes_of(1)) << "a byte of the copy differs";
  fs::resize_file(copy_of(cache, "raw1"), 9000);
  EXPECT_EQ(run(set, cache.path).bytes_copied, set.bytes_of(1)) << "the copy was truncated";
  std::ofstream(copy_of(cache, "raw0.json")) << "{\"source\"";
  EXPECT_EQ(run(set, cache.path).bytes_copied, set.bytes_of(0)) << "its record was truncated";
  const fs::path source = set.index.shards[2].path;
  fs::last_write_time(source, fs::last_write_time(source) + std::chrono::nanoseconds(1));
  EXPECT_EQ(run(set, cache.path).bytes_copied, set.bytes_of(2)) << "the source was written to";
  std::ofstream(copy_of(cache, "raw1").string() + ".part") << "left by a run that was killed";
  fs::remove(copy_of(cache, "raw1.json"));
  EXPECT_EQ(run(set, cache.path).bytes_copied, set.bytes_of(1));
  EXPECT_EQ(files_in(cache.path / "millrace-cache").size(), 6u) << "three copies and their records";
}

TEST(LocalCache, CopiesOfAPathThatIsNotUtf8AreReused) {
  Set set;
  const TemporaryFolder cache;
  ShardList renamed;
  for (Shard shard : set.index.shards) {
    const std::string path = shard.path.str() + "caf\xe9";  // Latin-1
    fs::rename(shard.path.str(), path);
    shard.path = path;
    renamed.push_back(shard);
  }
  set.index.shards = renamed;
  EXPECT_EQ(run(set, cache.path).bytes_copied, set.bytes());
  EXPECT_EQ(run(set, cache.path).bytes_reused, set.bytes());
}

TEST(LocalCache, DescribesTheCopiesOfADataSet) {
  const Set set;
  const TemporaryFolder cache;
  EXPECT_NE(describe_copies(set.index, cache.path).find("millrace-cache: 0 of 3 files, 0 B of "), std::string::npos);
  run(set, cache.path);
  EXPECT_NE(describe_copies(set.index, cache.path).find(": 3 of 3 files, "), std::string::npos);
  fs::resize_file(copy_of(cache, "raw1"), 9000);
  const std::string text = describe_copies(set.index, cache.path);
  EXPECT_NE(text.find(": 2 of 3 files, "), std::string::npos) << text;
  EXPECT_NE(text.find("raw1 will be made again: its length is wrong"), std::string::npos) << text;
  EXPECT_THROW(describe_copies(set.index, "memory"), Error);
}

TEST(LocalCache, TheBudgetAndAFullDiskEndTheCopyingButNotTheRun) {
  const Set set;
  const TemporaryFolder cache;
  run_thread_world(2, [&](World& world) {
    const auto source = cached_source(world, set, cache.path, set.bytes_of(0) + set.bytes_of(1) + 10);
    expect_epoch(set, *source, 1);
    EXPECT_TRUE(wait_for([&] { return source->staging().files_staged == 2; }));
    expect_epoch(set, *source, 2);
    world.barrier();
    const auto text = world.gather(source->staging().stopped);
    EXPECT_NE((text[0] + text[1]).find("data.cache_budget"), std::string::npos) << text[0] << text[1];
    EXPECT_EQ(source->staging().files_staged, 2u);
  });
  const TemporaryFolder full;
  const Faults no_space({{.file = ".part", .error = ENOSPC, .opening = true}});
  const auto world = solo_world();
  const auto source = cached_source(*world, set, full.path);
  expect_epoch(set, *source, 1);
  EXPECT_TRUE(wait_for([&] { return !source->staging().stopped.empty(); }));
  EXPECT_NE(source->staging().stopped.find("No space left"), std::string::npos) << source->staging().stopped;
  expect_epoch(set, *source, 2);
  EXPECT_EQ(source->staging().samples_from_copies, 0u);
}

TEST(LocalCache, TheSourceIsReadWhereACopyCannotBeRead) {
  const Set set;
  for (const Reader reader : {Reader::direct, Reader::mmap}) {
    const TemporaryFolder cache;
    const auto world = solo_world();
    const auto source = cached_source(*world, set, cache.path, 0, reader);
    expect_epoch(set, *source, 1);
    ASSERT_TRUE(all_copied(*source));
    const std::uint64_t before = source->staging().samples_from_copies;
    if (reader == Reader::mmap) fs::resize_file(copy_of(cache, "raw1"), 4096);
    const Faults broken({{"-raw1", 0, 1 << 30, eio}});
    expect_epoch(set, *source, 2);
    expect_epoch(set, *source, 3);
    const std::uint64_t from_copies = source->staging().samples_from_copies - before;
    EXPECT_GE(from_copies, 140u) << "from the two intact copies";
    EXPECT_LT(from_copies, 180u);
  }
}

TEST(LocalCache, RunsThatCopyToOneFolderAtOnceDoNotDisturbEachOther) {
  const Set set;
  const TemporaryFolder cache;
  const Faults slow({{.file = "/raw", .seconds = 1e-3}});
  std::vector<std::thread> runs;
  for (int r = 0; r < 3; ++r) runs.emplace_back([&] { run(set, cache.path); });
  for (auto& r : runs) r.join();
  EXPECT_EQ(files_in(cache.path / "millrace-cache").size(), 6u);
}

TEST(LocalCache, AFileThatChangesMeanwhileIsNotCopied) {
  const Set set;
  const TemporaryFolder cache;
  const auto world = solo_world();
  const auto source = cached_source(*world, set, cache.path);
  fs::resize_file(set.index.shards[1].path, set.bytes_of(1) - sample_bytes);  // its last sample
  std::vector<char> x(sample_bytes);
  std::int32_t y = 0;
  const std::int64_t first = 0;
  source->read({&first, 1}, x.data(), &y);
  EXPECT_TRUE(wait_for([&] { return source->staging().files_staged == 2; }));
  const std::int64_t lost = 49;
  message_of([&] { source->read({&lost, 1}, x.data(), &y); });
}

TEST(LocalCache, AnUnusableFolderAndCollectiveEnginesAreRefused) {
  const Set set;
  const auto world = solo_world();
  const std::string file = set.index.shards[0].path;
  EXPECT_NE(message_of([&] { cached_source(*world, set, file + "/below"); }, Exit::config).find("data.cache = " + file),
            std::string::npos);
  message_of([&] { cached_source(*world, set, "memory", 0, Reader::mpio); }, Exit::config);
}

}  // namespace local_cache_test
}  // namespace millrace
