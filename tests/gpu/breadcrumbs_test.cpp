// A real fault in a replayed graph. The breadcrumbs can be read from host memory afterwards, although the context is
// lost.
#include <gtest/gtest.h>

#include "cuda/errors/check.hpp"
#include "cuda/runtime/device.hpp"
#include "cuda/runtime/increment_counter.hpp"

namespace millrace {
namespace breadcrumbs_test {

// The memory of the counter is freed before the third run, which is the second replay.
[[noreturn]] void fail_in_third_step() {
  cuda::DeviceOptions options;
  options.breadcrumbs = cuda::FlightRecorder::Detail::each;
  cuda::CudaDevice device(0, options);
  void* counter = nullptr;
  MR_CUDA(cudaMalloc(&counter, 64 << 20));
  const cuda::LaunchContext context{device.stream(Stream::compute), 1};
  const auto step = device.capture("step of 4 rows", [&] {
    for (const char* piece : {"first forward", "second forward"}) {
      const ScopedLabel here(device, piece);
      if (piece[0] == 's') cuda::increment_counter(context, static_cast<std::uint64_t*>(counter));
    }
    const ScopedLabel here(device, "third forward");
  });
  try {
    for (const char* name : {"step 1", "step 2", "step 3"}) {
      const ScopedLabel here(device, name);
      if (name[5] == '3') MR_CUDA(cudaFree(counter));
      step->run();
      device.synchronize();
    }
    std::fprintf(stderr, "no fault\n");
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  std::_Exit(3);
}

TEST(BreadcrumbsDeathTest, NameTheOperationOfAReplayedGraphThatFaults) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // CUDA does not work after a fork
  EXPECT_EXIT(fail_in_third_step(), testing::ExitedWithCode(3), "the GPU was at step 3, .*second forward");
}

}  // namespace breadcrumbs_test
}  // namespace millrace
