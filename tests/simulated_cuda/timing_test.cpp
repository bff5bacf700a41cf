// How src/cuda times candidates and the memory of the device.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <thread>

#include "cuda/plans/device_timing.hpp"
#include "cuda/plans/fusion_cost.hpp"
#include "millrace/comm/world.hpp"
#include "simulated_cuda/runtime.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace timing_test {

using namespace cuda;

struct SimulatedTiming : ::testing::Test {
  SimulatedTiming() {
    cudaSetDevice(0);
    MR_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~SimulatedTiming() override { cudaStreamDestroy(stream); }
  // Work of the device that takes so long.
  void work(double seconds) {
    simulated::enqueue(stream, "work", [=] { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); });
  }
  cudaStream_t stream = nullptr;
};

TEST_F(SimulatedTiming, CandidatesAreTimedInGraphsAndFailuresScoreInfinity) {
  int unrecorded = 0, recorded = 0;
  const auto seconds = time_on_device(stream, 4, [&](std::size_t c) {
    if (c == 1) return false;  // cannot run
    const bool recording = simulated::is_capturing(stream);
    ++(recording ? recorded : unrecorded);
    if (c == 2 && recording) return false;  // cannot be recorded
    work(c == 0 ? 8e-3 : 5e-3);             // longer than the scheduler's delays on a busy host
    return true;
  });
  ASSERT_EQ(seconds.size(), 4u);
  EXPECT_GT(seconds[0], 7.9e-3);
  EXPECT_LT(seconds[0], 1);
  EXPECT_EQ(seconds[1], std::numeric_limits<double>::infinity());
  EXPECT_EQ(seconds[2], std::numeric_limits<double>::infinity());
  EXPECT_GT(seconds[3], 4.9e-3);
  EXPECT_LT(seconds[3], seconds[0]);
  EXPECT_GT(recorded, 0);
  EXPECT_GT(unrecorded, recorded) << "a recording is launched several times, each behind one plain call";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(SimulatedTiming, TheMemoryIsMeasuredOnceAndKeptWithThePlans) {
  const test::TemporaryFolder folder;
  const auto file = folder.path / "plans.json";
  PlanSelector first("this device", file, {});
  const double rate = copy_bytes_per_second(stream, first);
  EXPECT_GT(rate, 1e7);
  EXPECT_LT(rate, 1e13);
  EXPECT_EQ(copy_bytes_per_second(nullptr, first), rate) << "known: nothing is enqueued";
  PlanSelector later("this device", file, {}), other("another device", file, {.keep = false});
  EXPECT_EQ(copy_bytes_per_second(nullptr, later), rate) << "from the file";
  EXPECT_TRUE(other.cache().entries().empty());
}

// A memory clock of 3201 MHz and 6144 bits: 4.92 TB/s, of which 85% are assumed.
TEST_F(SimulatedTiming, WithoutTimingTheMemoryIsEstimatedFromItsBusAndNotKept) {
  const double bus = 2 * 3201e6 * 6144 / 8;
  EXPECT_DOUBLE_EQ(bus_bytes_per_second(3201000, 6144), bus);
  const test::TemporaryFolder folder;
  const auto file = folder.path / "plans.json";
  PlanSelector untimed("this device", file, {.autotune = false});
  EXPECT_NEAR(copy_bytes_per_second(stream, untimed), 0.85 * bus, 1);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(SimulatedTiming, AllRanksHaveTheValueOfRankZero) {
  std::array<double, 3> rates{};
  run_thread_world(3, [&](World& world) {
    PlanSelectorOptions options{.autotune = false, .rank = world.rank()};
    options.broadcast = [&](const std::string& text) { return world.broadcast_string(text); };
    PlanSelector selector("a device", "", options);
    cudaSetDevice(0);
    rates[std::size_t(world.rank())] = copy_bytes_per_second(nullptr, selector);
  });
  EXPECT_GT(rates[0], 0);
  EXPECT_EQ(rates[1], rates[0]);
  EXPECT_EQ(rates[2], rates[0]);
}

// The same times are accepted where memory is slow and refused where it is fast.
TEST(FusionCost, DependsOnTheBandwidthOfTheDevice) {
  EXPECT_EQ(why_fusion_is_slower(100e-6, 90e-6, 30e6, 2e12), "") << "the pass takes 15 us";
  EXPECT_EQ(why_fusion_is_slower(100e-6, 90e-6, 30e6, 4e12), "slower: 100 us for 90 + 8 at 4 TB/s");
  EXPECT_EQ(why_fusion_is_slower(89e-6, 90e-6, 30e6, 0), "") << "no bandwidth is needed";
  EXPECT_NE(why_fusion_is_slower(91e-6, 90e-6, 30e6, 0), "") << "the bandwidth is not known";
  EXPECT_EQ(why_fusion_is_slower(0, 90e-6, 30e6, 4e12), "") << "not timed";
}

}  // namespace timing_test
}  // namespace millrace
