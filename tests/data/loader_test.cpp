#include "millrace/data/load/loader.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <set>
#include <thread>

#include "data/raw_set.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/sources.hpp"
#include "support/host_device.hpp"

// Counts every allocation of this program.
static std::atomic<long> allocations{0};
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace millrace {
namespace {

using test::HostDevice;

ShardIndex index_of(std::int64_t rows) {
  ShardIndex d;
  d.rows = rows;
  d.sample = {5, 3, 1};
  d.x.dtype = DType::i16;
  return d;
}

// All values of sample `id` are id. Reads are slow, or fail, on request.
class Numbers : public Source {
 public:
  std::int64_t fail_at = -1;
  std::atomic<std::chrono::microseconds> delay{std::chrono::microseconds(0)};
  std::atomic<int> concurrent{0}, max_concurrent{0};
  int limit = 1 << 20;
  void read(std::span<const std::int64_t> ids, void* x, void* y) override {
    const int now = ++concurrent;
    for (int max = max_concurrent; max < now && !max_concurrent.compare_exchange_weak(max, now);) continue;
    if (const auto wait = delay.load(); wait.count()) std::this_thread::sleep_for(wait);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == fail_at) {
        --concurrent;
        fail(Exit::data, "shard-7 ends before sample ", ids[i]);
      }
      for (int v = 0; v < 15; ++v) static_cast<std::int16_t*>(x)[i * 15 + std::size_t(v)] = std::int16_t(ids[i]);
      static_cast<std::int32_t*>(y)[i] = std::int32_t(ids[i] * 2);
    }
    --concurrent;
  }
  std::string describe() const override { return "numbers"; }
  int max_workers() const override { return limit; }
};

// The micro-batches of the first `steps` steps on one rank.
std::function<std::optional<MicroBatch>()> items_of(const Sampler& sampler, std::int64_t steps) {
  std::vector<MicroBatch> all;
  for (std::int64_t s = 0; s < steps; ++s)
    for (const MicroBatch& m : sampler.share(s / sampler.steps_per_epoch(), s % sampler.steps_per_epoch(), 0, 1))
      all.push_back(m);
  return [all, at = std::size_t(0)]() mutable -> std::optional<MicroBatch> {
    if (at == all.size()) return std::nullopt;
    return all[at++];
  };
}

// The ids of all samples that a loader hands out. Checks every value.
std::vector<std::int64_t> all_ids(Loader& loader) {
  std::vector<std::int64_t> out;
  while (const Batch* b = loader.next()) {
    const std::int64_t rows = b->item.rows;
    EXPECT_EQ(b->x.shape, (Shape{rows, 5, 3, 1}));
    EXPECT_EQ(b->y.shape, (Shape{rows}));
    EXPECT_EQ(b->ids.shape, (Shape{rows}));
    EXPECT_EQ(b->x.dtype, DType::i16);
    EXPECT_EQ(b->y.dtype, DType::i32);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t id = b->ids.as<std::int64_t>()[r];
      for (int v = 0; v < 15; ++v) EXPECT_EQ(b->x.as<std::int16_t>()[r * 15 + v], std::int16_t(id));
      EXPECT_EQ(b->y.as<std::int32_t>()[r], std::int32_t(id * 2));
      out.push_back(id);
    }
  }
  EXPECT_EQ(loader.next(), nullptr);
  return out;
}

TEST(Loader, BatchesAreTheSameForAnyWorkersAndPrefetch) {
  const Sampler sampler(201, 32, 13, 5, true);
  const std::int64_t steps = 2 * sampler.steps_per_epoch();
  const ShardIndex index = index_of(201);
  std::vector<std::int64_t> expected;
  for (auto next = items_of(sampler, steps); const auto m = next();) {
    expected.resize(expected.size() + std::size_t(m->rows));
    sampler.ids(*m, expected.data() + expected.size() - std::size_t(m->rows));
  }
  ASSERT_EQ(expected.size(), 402u);
  for (const bool shares : {true, false})
    for (int workers = 0; workers <= 8; ++workers)
      for (int prefetch = 2; prefetch <= 5; ++prefetch) {
        HostDevice device(shares);
        Numbers source;
        Loader loader(device, source, index, sampler, {workers, prefetch, 13}, items_of(sampler, steps));
        ASSERT_EQ(all_ids(loader), expected) << workers << " workers, " << prefetch << " slots";
        EXPECT_EQ(loader.stats().bytes_read, 402u * (15 * 2 + 4));
        EXPECT_EQ(device.copies > 0, !shares);
      }
}

// The ring starts with 4 slots. When a step has waited although the ring had been full, it has 8, and so on.
TEST(Loader, AutomaticPrefetchGrowsWhenTheStepWaits) {
  const Sampler sampler(4000, 8, 8, 5, true);
  const ShardIndex index = index_of(4000);
  HostDevice device;
  for (const int prefetch : {0, 4}) {
    Numbers source;
    std::atomic<int> planned{0};
    auto next = items_of(sampler, 480);
    Loader loader(device, source, index, sampler, {2, prefetch, 8}, [&] {
      ++planned;
      return next();
    });
    int taken = 0, max_planned = 0;
    const auto until_quiet = [&] {  // the ring is full: nothing more is planned
      for (int before = -1; before != planned; std::this_thread::sleep_for(std::chrono::milliseconds(20)))
        before = planned;
      max_planned = std::max(max_planned, planned - taken);
    };
    until_quiet();
    EXPECT_LE(max_planned, 4);
    source.delay = std::chrono::milliseconds(2);
    for (int burst = 0; burst < 20 && max_planned < 16; ++burst) {
      for (int b = 0; b < max_planned + 3; ++b, ++taken) ASSERT_TRUE(loader.next());
      until_quiet();
    }
    EXPECT_EQ(max_planned >= 15, prefetch == 0) << max_planned;  // the step uses one of 16
    EXPECT_LE(max_planned, prefetch == 0 ? 64 : 4);
  }
}

TEST(Loader, WorkersRecordSpansWhileTracingIsOn) {
  const Sampler sampler(400, 8, 8, 5, true);
  const ShardIndex index = index_of(400);
  HostDevice device;
  for (const int workers : {0, 2}) {
    Numbers source;
    Loader loader(device, source, index, sampler, {workers, 2, 8}, items_of(sampler, 50));
    EXPECT_TRUE(loader.take_spans().empty());
    loader.trace(true);
    for (int b = 0; b < 25; ++b) ASSERT_TRUE(loader.next());
    loader.trace(false);
    std::map<int, double> free_from;
    std::set<std::uint64_t> batches;
    for (const LoaderSpan& s : loader.take_spans()) {
      EXPECT_LE(s.began, s.ended);
      EXPECT_GE(s.began, free_from[s.worker]);  // spans of a worker do not overlap
      free_from[s.worker] = s.ended;
      batches.insert(s.batch);
    }
    EXPECT_GE(batches.size(), 20u);  // all but those that were read before tracing was on
    all_ids(loader);
    EXPECT_TRUE(loader.take_spans().empty());
  }
}

TEST(Loader, ABatchIsValidUntilTheNextCall) {
  const Sampler sampler(4000, 8, 8, 5, true);
  const ShardIndex index = index_of(4000);
  HostDevice device;
  Numbers source;
  Loader loader(device, source, index, sampler, {3, 2, 8}, items_of(sampler, 60));
  while (const Batch* b = loader.next()) {
    const std::vector<std::int64_t> before(b->ids.as<std::int64_t>(), b->ids.as<std::int64_t>() + 8);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    ASSERT_TRUE(std::equal(before.begin(), before.end(), b->ids.as<std::int64_t>()));
    for (int r = 0; r < 8; ++r) ASSERT_EQ(b->x.as<std::int16_t>()[r * 15], std::int16_t(before[std::size_t(r)]));
  }
}

TEST(Loader, AfterRewindBatchesUseTheSameSlotsAsTheFirstOnes) {
  const Sampler sampler(4000, 8, 8, 5, true);
  const ShardIndex index = index_of(4000);
  HostDevice device(false);
  Numbers source;
  for (const int taken : {0, 1, 2, 3}) {
    Loader loader(device, source, index, sampler, {1, 2, 8}, items_of(sampler, 60));
    const void* first = taken ? loader.next()->x.data : nullptr;
    for (int b = 1; b < taken; ++b) loader.next();
    loader.rewind();
    const Batch* b = loader.next();
    const void* const place = b->x.data;
    EXPECT_EQ(place, taken ? first : place) << taken;
    for (int r = 0; r < 8; ++r) EXPECT_EQ(b->x.as<std::int16_t>()[r * 15], std::int16_t(b->ids.as<std::int64_t>()[r]));
    EXPECT_NE(loader.next()->x.data, place) << taken;
    EXPECT_EQ(loader.next()->x.data, place) << taken;
  }
}

TEST(Loader, TimesOneOfEightCopiesToTheDevice) {
  const Sampler sampler(4000, 8, 8, 5, true);
  const ShardIndex index = index_of(4000);
  class SlowCopies : public HostDevice {
   public:
    explicit SlowCopies(bool shares_host) : HostDevice(shares_host) {}
    void copy_to_device(Stream stream, void* to, const void* from, std::size_t bytes) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      HostDevice::copy_to_device(stream, to, from, bytes);
      this->bytes += bytes;
    }
    std::size_t bytes = 0;
  };
  for (const bool shares_host : {false, true}) {
    SlowCopies device(shares_host);
    Numbers source;
    Loader loader(device, source, index, sampler, {1, 4, 8}, items_of(sampler, 30));
    while (loader.next())
      ;
    const LoaderStats stats = loader.stats();
    if (shares_host) {
      EXPECT_EQ(stats.copy_rate(), 0);
      EXPECT_EQ(stats.copied_bytes, 0u);
      continue;
    }
    EXPECT_EQ(stats.batches, 30u);
    const double copies = double(stats.copied_samples) / 8;  // the second, the tenth, and so on
    EXPECT_EQ(copies, 4);
    EXPECT_EQ(double(stats.copied_bytes), copies * double(device.bytes) / 30);
    EXPECT_GE(stats.copy_seconds, copies * 0.002);
    EXPECT_LT(stats.copy_rate(), 8 / 0.002);
    EXPECT_DOUBLE_EQ(stats.copy_bytes_rate() / stats.copy_rate(), double(device.bytes) / 30 / 8);
  }
}

TEST(Loader, AFailureIsThrownForItsOwnBatchAndNothingHangs) {
  const Sampler sampler(100, 10, 10, 5, false);
  const ShardIndex index = index_of(100);
  for (int workers = 0; workers <= 4; ++workers) {
    HostDevice device;
    Numbers source;
    source.fail_at = 45;
    Loader loader(device, source, index, sampler, {workers, 3, 10}, items_of(sampler, 10));
    for (int b = 0; b < 4; ++b) {
      const Batch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      EXPECT_EQ(batch->item.first, b * 10);
    }
    for (int again = 0; again < 2; ++again) try {
        loader.next();
        FAIL() << "no error with " << workers << " workers";
      } catch (const Error& e) {
        EXPECT_STREQ(e.what(), "shard-7 ends before sample 45");
        EXPECT_EQ(e.code(), Exit::data);
      }
  }
}

TEST(Loader, AFailingItemFunctionOrAWrongItemIsAnError) {
  const Sampler sampler(100, 10, 10, 5, false);
  const ShardIndex index = index_of(100);
  for (const int workers : {0, 2}) {
    HostDevice device;
    Numbers source;
    Loader throws(device, source, index, sampler, {workers, 3, 10},
                  []() -> std::optional<MicroBatch> { fail(Exit::config, "no more"); });
    EXPECT_THROW(throws.next(), Error);
    for (const std::int64_t rows : {std::int64_t(0), std::int64_t(11)}) {
      Loader wrong(device, source, index, sampler, {workers, 3, 10}, [rows]() -> std::optional<MicroBatch> {
        return MicroBatch{0, 0, 0, rows};
      });
      EXPECT_THROW(wrong.next(), Error);
    }
  }
}

TEST(Loader, CanBeDestroyedAtAnyMoment) {
  const Sampler sampler(1000, 10, 10, 5, true);
  const ShardIndex index = index_of(1000);
  for (int round = 0; round < 40; ++round) {
    HostDevice device(round % 2 == 0);
    Numbers source;
    source.delay = std::chrono::microseconds(round % 5 * 50);
    Loader loader(device, source, index, sampler, {1 + round % 4, 2 + round % 3, 10}, items_of(sampler, 100));
    for (int b = 0; b < round % 7; ++b) ASSERT_NE(loader.next(), nullptr);
  }
}

TEST(Loader, WorkersShareTheOldestSlotWithinTheSourcesLimitOfWorkers) {
  const Sampler sampler(1000, 40, 40, 5, true);
  const ShardIndex index = index_of(1000);
  HostDevice device;
  Numbers source;
  source.delay = std::chrono::milliseconds(2);
  {
    Loader loader(device, source, index, sampler, {4, 2, 40}, items_of(sampler, 10));
    EXPECT_EQ(all_ids(loader).size(), 400u);
  }
  EXPECT_GT(source.max_concurrent, 1);
  Numbers alone;
  alone.limit = 1;
  Loader loader(device, alone, index, sampler, {4, 2, 40}, items_of(sampler, 10));
  EXPECT_EQ(all_ids(loader).size(), 400u);
  EXPECT_EQ(alone.max_concurrent, 1);
}

// The process has too little address space for the stacks. Threads that run are joined, and the error names the key to
// lower.
TEST(Loader, ThreadsThatCannotBeStartedAreAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more address space than this test allows";
#endif
  const pid_t child = fork();
  if (child == 0) {
    const rlimit small{std::size_t(1) << 30, std::size_t(1) << 30};
    setrlimit(RLIMIT_AS, &small);
    const Sampler sampler(201, 32, 13, 5, true);
    const ShardIndex index = index_of(201);
    Numbers source;
    HostDevice device;
    try {
      const Loader loader(device, source, index, sampler, {100000, 3, 13}, items_of(sampler, 3));
      _exit(1);
    } catch (const Error& e) {
      _exit(e.code() == Exit::config && std::strstr(e.what(), "data.workers") ? 0 : 2);
    }
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Loader, CountsWaitsAndDepth) {
  const Sampler sampler(1000, 10, 10, 5, true);
  const ShardIndex index = index_of(1000);
  HostDevice device;
  Numbers source;
  source.delay = std::chrono::milliseconds(3);
  Loader slow(device, source, index, sampler, {1, 3, 10}, items_of(sampler, 10));
  while (slow.next()) continue;
  const LoaderStats waited = slow.stats();
  EXPECT_EQ(waited.batches, 10u);
  EXPECT_GE(waited.read_seconds, 0.030);
  EXPECT_GT(waited.wait_seconds, 0);

  source.delay = std::chrono::milliseconds(0);
  Loader ready(device, source, index, sampler, {1, 3, 10}, items_of(sampler, 10));
  for (int b = 0; b < 10; ++b) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_NE(ready.next(), nullptr);
  }
  EXPECT_GE(ready.stats().queue_depth_sum, 15u);
}

// A unit is 256 KiB of samples. Each unit and each wait reads the clock twice.
TEST(Loader, CountsItsClockReads) {
  ShardIndex index = index_of(64);
  index.sample = {1 << 13, 8, 1};  // 128 KiB
  const Sampler sampler(64, 16, 16, 5, true);
  HostDevice device;
  for (const auto& [workers, units] : {std::pair(0, 4u), std::pair(1, 4u), std::pair(2, 32u)}) {
    Numbers source;
    Loader loader(device, source, index, sampler, {workers, 3, 16}, items_of(sampler, 4));
    for (int b = 0; b < 4; ++b) ASSERT_NE(loader.next(), nullptr);
    const std::uint64_t expected = 2 * (4 + units), read = loader.stats().clock_reads;
    EXPECT_GE(read, expected) << workers << " workers";
    EXPECT_LE(read, expected + 2 * (units + std::uint64_t(workers)))
        << workers << " workers, including waits for free slots";
  }
}

TEST(Loader, AllocatesNothingInSteadyState) {
  const Sampler sampler(1000, 10, 10, 5, true);
  const ShardIndex index = index_of(1000);
  HostDevice device(false);
  Numbers source;
  Loader loader(device, source, index, sampler, {2, 3, 10}, items_of(sampler, 50));
  for (int b = 0; b < 5; ++b) loader.next();
  const long before = allocations;
  for (int b = 0; b < 40; ++b) ASSERT_NE(loader.next(), nullptr);
  EXPECT_EQ(allocations, before);
}

TEST(Loader, NoEngineAllocatesInSteadyState) {
  const test::RawSet set(3000, {600, 400}, 100);
  const Sampler sampler(1000, 10, 10, 5, true);
  const auto world = solo_world();
  for (const Reader reader : {Reader::direct, Reader::mmap, Reader::uring}) {
    if (!unsupported_reason(reader, reader_facts(set.index), set.index).empty())
      continue;  // O_DIRECT cannot be used here
    HostDevice device(false);
    const auto source = make_source(*world, set.index, reader);
    Loader loader(device, *source, set.index, sampler, {2, 3, 10}, items_of(sampler, 300));
    for (int b = 0; b < 100; ++b) loader.next();
    const long before = allocations;
    for (int b = 0; b < 190; ++b) ASSERT_NE(loader.next(), nullptr);
    EXPECT_EQ(allocations, before) << source->describe();
  }
}

}  // namespace
}  // namespace millrace
