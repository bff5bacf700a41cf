#include "millrace/data/load/loader.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "data/load/numbers.hpp"

namespace millrace {
namespace loader_test {

using test::all_ids;
using test::HostDevice;
using test::index_of;
using test::items_of;
using test::Numbers;

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

}  // namespace loader_test
}  // namespace millrace
