// What the loader measures: waits, copies, spans of workers, and how often it reads the clock.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "data/load/numbers.hpp"

namespace millrace {
namespace loader_stats_test {

using test::all_ids;
using test::HostDevice;
using test::index_of;
using test::items_of;
using test::Numbers;

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

}  // namespace loader_stats_test
}  // namespace millrace
