#include "millrace/comm/staged.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "millrace/base/error.hpp"
#include "support/collective_checks.hpp"
#include "support/delayed_stream_device.hpp"

namespace millrace {
namespace staged_test {

CollectiveOptions options() {
  CollectiveOptions o;
  o.timeout_seconds = 15;
  o.chunk_bytes = 64 << 10;
  return o;
}

// Synchronizes the device after wait() and finish(): the checks then access regions from the host, while work on the
// streams of a device could still be running.
class SynchronizingCollective : public Collective {
 public:
  SynchronizingCollective(std::unique_ptr<Collective> inner, Device& device)
      : inner_(std::move(inner)), device_(device) {}
  std::string describe() const override { return inner_->describe(); }
  SharedRegion allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void all_reduce_async(const SharedRegion& r, std::size_t b, std::size_t n, DType t, int tag) override {
    inner_->all_reduce_async(r, b, n, t, tag);
  }
  void reduce_scatter_async(const SharedRegion& r, std::size_t b, std::size_t n, DType t, int tag) override {
    inner_->reduce_scatter_async(r, b, n, t, tag);
  }
  void all_gather_async(const SharedRegion& r, std::size_t b, std::size_t n, DType t, int tag) override {
    inner_->all_gather_async(r, b, n, t, tag);
  }
  void wait(int tag) override {
    inner_->wait(tag);
    device_.synchronize();
  }
  void finish() override {
    inner_->finish();
    device_.synchronize();
  }
  void all_reduce_scalars(std::span<double> values) override { inner_->all_reduce_scalars(values); }
  void broadcast(const SharedRegion& r, std::size_t begin, std::size_t bytes, int root) override {
    inner_->broadcast(r, begin, bytes, root);
  }
  void take_spans(std::vector<CommSpan>& out) override { inner_->take_spans(out); }

 private:
  std::unique_ptr<Collective> inner_;
  Device& device_;
};

TEST(StagedCollective, AllReduceEqualsTheSumInRankOrder) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    run_thread_world(ranks, [&](World& world) {
      test::HostDevice device(false);
      const auto collective = make_staged_collective(world, device, options());
      check_all(world, *collective);
      check_pipeline(world, *collective);
      check_scatter_gather(world, *collective);
      check_waits(world, *collective);
      check_blocking_gathers(world, *collective);
      world.barrier();
    });
}

TEST(StagedCollective, ResultsAreCorrectWithIndependentStreams) {
  run_thread_world(3, [&](World& world) {
    test::DelayedStreamDevice device({20, 20, 20});
    SynchronizingCollective collective(make_staged_collective(world, device, options()), device);
    check_all(world, collective);
    check_pipeline(world, collective);
    check_scatter_gather(world, collective);
    check_waits(world, collective);
    world.barrier();
  });
}

// As in a forward pass: work that is enqueued after wait() sees the complete bucket, whichever stream is slow.
TEST(StagedCollective, ComputeStreamContinuesAfterTheOperationItWaitsFor) {
  constexpr std::size_t buckets = 4, part = 700, count = 2 * part;
  for (const auto& pauses : {std::array{500, 0, 0}, std::array{0, 500, 0}, std::array{0, 0, 500}})
    run_thread_world(2, [&](World& world) {
      test::DelayedStreamDevice device(pauses);
      const auto collective = make_staged_collective(world, device, options());
      const SharedRegion region = collective->allocate(buckets * count * sizeof(float));
      auto* data = static_cast<float*>(region.data);
      const std::size_t rank = std::size_t(world.rank());
      std::atomic<int> wrong = 0;
      for (int round = 0; round < 4; ++round) {
        device.enqueue(Stream::compute, [=] {  // the weight update
          for (std::size_t i = 0; i < buckets * count; ++i)
            if (i % count / part == rank) data[i] = value_of(round, i);
        });
        for (std::size_t b = 0; b < buckets; ++b)
          collective->all_gather_async(region, b * count, count, DType::f32, int(b));
        for (std::size_t b = 0; b < buckets; ++b) {
          collective->wait(int(b));
          device.enqueue(Stream::compute, [=, &wrong] {
            for (std::size_t i = b * count; i < (b + 1) * count; ++i) wrong += data[i] != value_of(round, i);
          });
        }
      }
      collective->finish();
      device.synchronize();
      EXPECT_EQ(wrong, 0);
      world.barrier();
    });
}

// As in training: the compute stream writes the buckets late, reads the sums and overwrites the buckets, while the host
// runs ahead.
TEST(StagedCollective, StreamsStaySynchronizedThroughoutSteps) {
  constexpr std::size_t buckets = 5, count = 3000;
  constexpr int steps = 10;
  for (const auto& pauses : {std::array{1000, 0, 0}, std::array{0, 1000, 0}, std::array{0, 0, 1000}})
    run_thread_world(2, [&](World& world) {
      test::DelayedStreamDevice device(pauses);
      CollectiveOptions few = options();
      few.chunk_bytes = 4 << 10;
      const auto collective = make_staged_collective(world, device, few);
      const SharedRegion region = collective->allocate(buckets * count * sizeof(float));
      float* const data = static_cast<float*>(region.data);
      std::atomic<int> wrong = 0;
      const int rank = world.rank();
      for (int step = 0; step < steps; ++step) {
        for (std::size_t b = buckets; b-- > 0;) {
          device.enqueue(Stream::compute, [=] {
            for (std::size_t i = b * count; i < (b + 1) * count; ++i) data[i] = value_of(rank, i) + float(step);
          });
          collective->all_reduce_async(region, b * count, count, DType::f32, int(b));
        }
        collective->finish();
        device.enqueue(Stream::compute, [=, &wrong] {
          for (std::size_t i = 0; i < buckets * count; ++i)
            wrong += data[i] != value_of(0, i) + value_of(1, i) + 2 * float(step);
        });
      }
      device.synchronize();
      EXPECT_EQ(wrong, 0);
      std::vector<CommSpan> spans;
      collective->take_spans(spans);
      EXPECT_EQ(spans.size(), steps * buckets);
      for (const CommSpan& s : spans) {
        EXPECT_TRUE(s.queued <= s.started && s.started <= s.ended);
        EXPECT_EQ(s.bytes, count * sizeof(float));
      }
      world.barrier();
    });
}

TEST(StagedCollective, BroadcastReachesTheOtherDevices) {
  run_thread_world(3, [&](World& world) {
    test::DelayedStreamDevice device;
    const auto collective = make_staged_collective(world, device, options());
    const SharedRegion region = collective->allocate(1000);
    char* const data = static_cast<char*>(region.data);
    device.enqueue(Stream::compute, [&] { std::memset(data, 'a' + world.rank(), 1000); });
    collective->broadcast(region, 100, 700, 1);
    device.synchronize();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(data[i], i >= 100 && i < 800 ? 'b' : 'a' + world.rank()) << "byte " << i;
    world.barrier();
  });
}

TEST(StagedCollective, LateRankIsNamedAfterTheTimeout) {
  std::atomic<int> named = 0;
  run_thread_world(3, [&](World& world) {
    CollectiveOptions short_time = options();
    short_time.timeout_seconds = 0.3;
    test::DelayedStreamDevice device;
    const auto collective = make_staged_collective(world, device, short_time);
    named += times_that_rank_1_is_named(world, *collective);
  });
  EXPECT_EQ(named, 2);
}

TEST(StagedCollective, HostMemoryOfEachRegionIsPinnedOnceAndUnpinned) {
  run_thread_world(2, [&](World& world) {
    int pinned = 0, unpinned = 0;
    std::atomic<int> workers = 0;
    {
      test::HostDevice device(false);
      const auto collective = make_staged_collective(
          world, device, options(),
          {[&](void*, std::size_t) { ++pinned; }, [&](void*) { ++unpinned; }, [&] { ++workers; }});
      collective->allocate(4096);
      collective->allocate(100000);
      world.barrier();
    }
    EXPECT_EQ(workers, 1);
    EXPECT_EQ(pinned, 2);
    EXPECT_EQ(unpinned, 2);
  });
}

}  // namespace staged_test
}  // namespace millrace
