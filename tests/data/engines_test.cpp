#include "data/engines.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <functional>
#include <numeric>

#include "data/open/wrappers.hpp"
#include "data/raw_set.hpp"
#include "data/read/queue_depth_tuner.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/async_reads.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/sources.hpp"
#include "support/host/device.hpp"

namespace millrace {
namespace engines_test {

using test::Engine;
using test::message_of;
using test::RawSet;
using test::unbuffered;

// Reads that a kernel may legally do: in any order, in parts, interrupted; or failing.
class DifficultReads : public AsyncReads {
 public:
  enum class Kind { parts, no_such_memory, broken };
  DifficultReads(Kind kind, std::span<const std::span<char>> memory)
      : kind_(kind), own_(memory.empty() ? std::span<char>() : memory[0]) {}
  std::size_t capacity() const override { return 5; }
  void add(const AsyncRead& read) override { in_flight_.push_back(read); }
  void start() override {}
  std::size_t wait(std::span<AsyncDone> out) override {
    ++count_;
    const AsyncRead read = count_ % 2 ? in_flight_.back() : in_flight_.front();
    count_ % 2 ? in_flight_.pop_back() : in_flight_.pop_front();
    out[0] = {read.tag, result(read)};
    return 1;
  }
  std::string describe() const override { return "difficult reads"; }

 private:
  std::int32_t result(const AsyncRead& read) {
    if (kind_ == Kind::broken && count_ > 3) return -EIO;
    if (kind_ == Kind::no_such_memory && (read.to < own_.data() || read.to >= own_.data() + own_.size()))
      return -EFAULT;
    if (count_ % 5 == 0) return count_ % 2 ? -EINTR : -EAGAIN;
    const std::size_t bytes = count_ % 3 && read.bytes >= 8192 ? read.bytes / 2 / 4096 * 4096 : read.bytes;
    return std::int32_t(::pread(read.fd, read.to, bytes, off_t(read.offset)));
  }
  const Kind kind_;
  const std::span<char> own_;  // memory of the engine, not of the loader
  int count_ = 0;
  std::deque<AsyncRead> in_flight_;
};

Engine hard(const std::string& name, DifficultReads::Kind kind) {
  return unbuffered(name, [kind](auto memory) { return std::make_unique<DifficultReads>(kind, memory); });
}

std::vector<Engine> engines() {
  std::vector<Engine> all = test::portable_engines();
  all.push_back(hard("parts", DifficultReads::Kind::parts));
  all.push_back(hard("no such memory", DifficultReads::Kind::no_such_memory));
  if (uring_unavailable_reason().empty()) all.push_back(unbuffered("uring", make_uring_reads));
  return all;
}

// Sizes around blocks of 512 and 4096 bytes and around the maximum of a read, at aligned and unaligned offsets.
TEST(Engines, AllGiveTheSameBytesAtAnyOffset) {
  for (const std::int64_t bytes : {1, 3072, 5003, 114660, 300001})
    for (const std::uint64_t offset : {0, 37, 4096 - 4 * 9}) {
      const RawSet set(bytes, {9, 1, 23}, offset);
      std::vector<std::int64_t> up(33), down(33), jumps(33);
      std::iota(up.begin(), up.end(), 0);
      for (std::size_t i = 0; i < 33; ++i) {
        down[i] = std::int64_t(32 - i);
        jumps[i] = std::int64_t(i * 10 % 33);
      }
      for (const Engine& engine : engines()) {
        const auto source = engine.make(set.index);
        for (const auto& ids : {up, down, jumps, {32}, {8, 9, 10}}) {
          std::vector<char> x(ids.size() * std::size_t(bytes));
          std::vector<std::int32_t> y(ids.size());
          source->read(ids, x.data(), y.data());
          set.expect(ids, x.data(), y.data(), fmt::format("{}, {} bytes at {}", engine.name, bytes, offset));
        }
      }
    }
}

std::function<std::optional<MicroBatch>()> micro_batches(std::int64_t rows, std::int64_t each, int epochs) {
  return [=, e = std::int64_t(0), first = std::int64_t(0)]() mutable -> std::optional<MicroBatch> {
    if (first == rows) {
      first = 0;
      ++e;
    }
    if (e == epochs) return std::nullopt;
    const MicroBatch item{e, first / each, first, std::min(each, rows - first)};
    first += item.rows;
    return item;
  };
}

TEST(Engines, GiveTheLoaderTheSameBatchesWithAnyWorkers) {
  for (const std::int64_t bytes : {3072, 5003, 200000}) {
    const RawSet set(bytes, {40, 30}, 512 - 4 * 40 % 512);
    for (const Engine& engine : engines())
      for (const int workers : {0, 1, 3}) {
        test::HostDevice device;
        const auto source = engine.make(set.index);
        const Sampler sampler(70, 16, 16, 5, true);
        Loader loader(device, *source, set.index, sampler, {workers, 2 + workers, 16}, micro_batches(70, 16, 2));
        std::int64_t rows = 0;
        while (const Batch* b = loader.next()) {
          std::vector<std::int64_t> ids(std::size_t(b->item.rows));
          sampler.ids(b->item, ids.data());
          set.expect(ids, b->x.as<char>(), b->y.as<std::int32_t>(),
                     fmt::format("{}, {} workers", engine.name, workers));
          rows += b->item.rows;
        }
        EXPECT_EQ(rows, 140) << engine.name;
      }
  }
}

TEST(Engines, NameTheFileAndTheFirstMissingSample) {
  for (const Engine& engine : engines()) {
    const RawSet set(5000, {20, 20}, 100);
    const auto source = engine.make(set.index);
    std::vector<char> x(5 * 5000);
    std::vector<std::int32_t> y(5);
    const auto read = [&](std::vector<std::int64_t> ids) { source->read(ids, x.data(), y.data()); };
    read({25, 3});
    // The file ends within a page, at the end of one, and many pages before the sample.
    for (const std::uint64_t cut : {6 * 5000 + 17, 5 * 5000, 1000}) {
      std::filesystem::resize_file(set.index.shards[1].path, set.index.shards[1].x_offset + cut);
      const std::int64_t first = 20 + std::int64_t(cut / 5000);
      const std::string message = message_of([&] { read({first, first + 1, 2}); });
      EXPECT_NE(message.find(fmt::format("raw1 ends before sample {}", first)), std::string::npos)
          << engine.name << message;
      EXPECT_NE(message.find("truncated while in use"), std::string::npos) << engine.name << message;
    }
    read({3, 4});
    std::filesystem::remove(set.index.shards[0].path);
    const auto reopened = engine.make(set.index);
    const std::string message = message_of([&] { reopened->read(std::vector<std::int64_t>{1}, x.data(), y.data()); });
    EXPECT_NE(message.find("raw0 (No such file"), std::string::npos) << engine.name << message;
  }
}

TEST(Engines, TheLoaderNamesTheFileOnAFailingDisk) {
  const RawSet set(5000, {40}, 100);
  for (const int workers : {0, 2}) {
    test::HostDevice device;
    const auto source = hard("", DifficultReads::Kind::broken).make(set.index);
    const Sampler sampler(40, 8, 8, 5, true);
    Loader loader(device, *source, set.index, sampler, {workers, 3, 8}, micro_batches(40, 8, 1));
    const std::string message = message_of([&] {
      while (loader.next()) continue;
    });
    EXPECT_NE(message.find("cannot read sample "), std::string::npos) << message;
    EXPECT_NE(message.find("raw0 (Input/output error)"), std::string::npos) << message;
  }
}

TEST(Engines, AreDestroyedWithReadsInFlight) {
  const RawSet set(100000, {64}, 0);
  for (const Engine& engine : engines())
    for (int round = 0; round < 5; ++round) {
      test::HostDevice device;
      const auto source = engine.make(set.index);
      const Sampler sampler(64, 16, 16, 5, true);
      Loader loader(device, *source, set.index, sampler, {2, 4, 16}, micro_batches(64, 16, 3));
      for (int b = 0; b < round; ++b) ASSERT_NE(loader.next(), nullptr);
    }
}

TEST(Engines, DescribeThemselves) {
  const RawSet set(100, {5}, 0);
  const auto world = solo_world();
  EXPECT_EQ(make_source(*world, set.index, Reader::mmap)->describe(), "mmap: contiguous data, 1 shard, y in memory");
  EXPECT_EQ(make_uring_source(set.index, "", [](auto) { return make_pooled_reads(3); })->describe(),
            "uring: O_DIRECT by 3 threads, contiguous data, 1 shard, y in memory");
  const std::string chosen = make_source(*world, set.index, Reader::automatic)->describe();
  EXPECT_TRUE(chosen.starts_with("mmap: ")) << chosen;
  EXPECT_NE(chosen.find("(auto: "), std::string::npos) << chosen;
}

TEST(ReaderChoice, FollowsTheFacts) {
  constexpr std::uint64_t gib = std::uint64_t(1) << 30;
  ReaderFacts f;
  f.file_system = "ext4";
  f.bytes = 9 * gib;
  f.available = 20 * gib;
  const auto expect = [&](Reader reader, const std::string& why) {
    const ReaderChoice choice = choose_reader(f);
    EXPECT_EQ(int(choice.reader), int(reader)) << choice.why;
    EXPECT_NE(choice.why.find(why), std::string::npos) << choice.why;
  };
  expect(Reader::mmap, "fit in half of the ");
  f.bytes = 11 * gib;
  expect(Reader::uring, "are more than half of the ");
  f.no_mmap = "No such device";
  f.bytes = gib;
  expect(Reader::direct, "free memory, but cannot be mapped: No such device");
  f.in_memory = true;
  expect(Reader::direct, "in memory, but cannot be mapped");
  f.no_mmap = "";
  f.in_memory = false;
  f.bytes = 11 * gib;
  f.no_uring = "the kernel refuses it (Operation not permitted)";
  expect(Reader::uring, "no io_uring: the kernel refuses it (Operation not permitted)");
  f.no_direct_io = "Invalid argument";
  expect(Reader::direct, "no O_DIRECT: Invalid argument");
  f.in_memory = true;
  f.file_system = "tmpfs";
  expect(Reader::mmap, "files on tmpfs are in memory");
  f.in_memory = false;
  f.local = false;
  f.file_system = "lustre";
  f.bytes = gib;
  expect(Reader::direct, "lustre");
  f.file_system = "";
  expect(Reader::direct, "a file system unknown here");
  f.contiguous = false;
  expect(Reader::direct, "chunks are decoded by the workers");
  f.hdf5_only_reason = "scaleoffset";
  expect(Reader::mpio, "only HDF5 can read it");
}

TEST(ReaderChoice, UnsupportedEnginesAreRefusedWithTheRemedy) {
  const RawSet set(100, {5}, 0);
  const auto has = [&](Reader reader, const ReaderFacts& f, const std::string& text) {
    const std::string problem = unsupported_reason(reader, f, set.index);
    EXPECT_NE(problem.find(text), std::string::npos) << problem;
  };
  ReaderFacts f = reader_facts(set.index);
  EXPECT_EQ(f.bytes, 500u);
  EXPECT_GT(f.available, 0u);
  for (const Reader reader : {Reader::direct, Reader::mmap}) EXPECT_EQ(unsupported_reason(reader, f, set.index), "");
  f.no_direct_io = "Invalid argument";
  has(Reader::uring, f, "raw0 cannot be read by O_DIRECT (Invalid argument). use auto, direct or mmap");
  f.no_mmap = "No such device";
  has(Reader::mmap, f, "raw0 cannot be mapped (No such device). use auto or direct");
  f.contiguous = false;
  has(Reader::mmap, f, "data.reader = mmap reads contiguous data only");
  has(Reader::uring, f, "use auto or direct, or `millrace pack`");
  EXPECT_EQ(unsupported_reason(Reader::direct, f, set.index), "");
  f.hdf5_only_reason = "scaleoffset";
  has(Reader::direct, f, "data.reader = direct cannot read scaleoffset. use auto or mpio");
}

// Simulates a disk that works on up to `servers` reads at once, each for `service` seconds; the queue is always full.
// Returns the mean depth over the last half of the reads.
double settle(QueueDepthTuner& depth, int servers, double service, int reads) {
  static double clock = 0;
  double sum = 0;
  for (int i = 0; i < reads; ++i) {
    clock += service / std::min(servers, depth.depth());
    depth.read_completed(4096, clock, true);
    if (i >= reads / 2) sum += depth.depth();
  }
  return sum / (reads - reads / 2);
}

TEST(QueueDepthTuner, FindsTheDepthThatSaturatesADisk) {
  for (const int servers : {3, 10, 40}) {
    QueueDepthTuner depth(64);
    const double found = settle(depth, servers, 1e-3, 40000);
    EXPECT_GE(found, 0.8 * servers) << servers;
    EXPECT_LE(found, 2.0 * servers + 1) << servers;
  }
}

TEST(QueueDepthTuner, FollowsADiskThatChanges) {
  QueueDepthTuner depth(64);
  settle(depth, 4, 1e-3, 40000);
  EXPECT_GE(settle(depth, 32, 1e-3, 160000), 24);
  EXPECT_LE(settle(depth, 4, 1e-3, 80000), 12);
}

TEST(QueueDepthTuner, IgnoresRatesWhileTheQueueIsNotFull) {
  QueueDepthTuner depth(64);
  const int before = depth.depth();
  for (int i = 0; i < 10000; ++i) depth.read_completed(4096, i * 1e-3, i % 8 != 0);
  EXPECT_EQ(depth.depth(), before);
  QueueDepthTuner alone(1);
  EXPECT_EQ(settle(alone, 4, 1e-4, 1000), 1);
}

}  // namespace engines_test
}  // namespace millrace
