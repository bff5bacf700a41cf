// NCCL on one GPU: a single rank, but the same code as for many.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "cuda/nccl/nccl_collective.hpp"
#include "cuda/runtime/device.hpp"
#include "millrace/comm/world.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace collective_test {

TEST(NcclOnOneGpu, CapturedAllReducesReportTheirTimesAtEveryReplay) {
  auto& device = dynamic_cast<cuda::CudaDevice&>(test::device());
  const auto world = solo_world();
  const auto collective = cuda::make_nccl_collective(*world, device, {}, {}, true);
  std::vector<float> values(100000), seen(values.size());
  std::iota(values.begin(), values.end(), 1.0f);
  const std::size_t half = values.size() / 2, bytes = values.size() * sizeof(float);
  const SharedRegion region = collective->allocate(bytes);
  device.copy_to_device(Stream::compute, region.data, values.data(), bytes);
  const auto captured = device.capture("sums", [&] {
    for (const int tag : {1, 0}) collective->all_reduce_async(region, std::size_t(tag) * half, half, DType::f32, tag);
    collective->finish();
  });
  double before = 0;
  for (int round = 0; round < 4; ++round) {  // launched one by one, captured, replayed twice
    captured->run();
    device.synchronize();
    std::vector<CommSpan> spans;
    collective->take_spans(spans);
    ASSERT_EQ(spans.size(), 2u) << "round " << round;
    for (int i = 0; i < 2; ++i) {
      const CommSpan& span = spans[std::size_t(i)];
      EXPECT_EQ(span.tag, 1 - i);
      EXPECT_EQ(span.bytes, half * sizeof(float));
      // The reference of the clock is up to 200 us off, and renewed in between.
      EXPECT_GT(span.ended, before - 200e-6) << "round " << round;
      EXPECT_TRUE(span.queued <= span.started && span.started <= span.ended) << "round " << round;
    }
    before = spans.back().ended;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    collective->take_spans(spans);
    EXPECT_TRUE(spans.empty()) << "the spans of a replay were returned twice";
  }
  device.copy_to_host(Stream::compute, seen.data(), region.data, bytes);
  device.synchronize();
  EXPECT_EQ(seen, values);
}

}  // namespace collective_test
}  // namespace millrace
