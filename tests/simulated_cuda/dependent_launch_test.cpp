// Dependent kernels (cuda/block/block.hpp): they start before the kernel before them has ended, unless they wait.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>

#include "cuda/block/block.hpp"
#include "simulated_cuda/rules.hpp"

namespace millrace::test {
namespace dependent_launch_test {

class SimulatedDependentKernels : public testing::TestWithParam<bool> {
 protected:
  SimulatedDependentKernels() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  ~SimulatedDependentKernels() override { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }

  // Launches one kernel after the other, or a graph of them.
  void run(const std::function<void()>& launches) {
    if (!GetParam()) {
      launches();
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      return;
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    launches();
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  }
  // The k-th of a row of kernels.
  void launch(int k, bool dependent, bool waits = true) {
    cuda::run_on_host({stream, "", dependent}, [this, k, waits] {
      if (ended < k) ++early;
      if (waits) cuda::wait_for_earlier_kernels();
      EXPECT_EQ(ended, k);
      ended = k + 1;
    });
  }

  cudaStream_t stream = nullptr;
  std::atomic<int> ended{0}, early{0};
};

TEST_P(SimulatedDependentKernels, StartEarlyAndWait) {
  for (int round = 0; round < 20; ++round) {
    ended = 0;
    run([&] {
      for (int k = 0; k < 10; ++k) launch(k, true);
    });
    EXPECT_EQ(ended, 10);
  }
  EXPECT_GT(early, 10);
}

TEST_P(SimulatedDependentKernels, StartInTheirTurnBehindOtherWork) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  for (int round = 0; round < 20; ++round) {
    ended = 0;
    run([&] {
      for (int k = 0; k < 10; ++k) {
        launch(k, true);
        EXPECT_EQ(cudaMemsetAsync(memory, 0, 64, stream), cudaSuccess);
      }
    });
  }
  EXPECT_EQ(early, 0);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_P(SimulatedDependentKernels, UsualKernelsStartInTheirTurn) {
  for (int round = 0; round < 20; ++round) {
    ended = 0;
    run([&] {
      for (int k = 0; k < 10; ++k) launch(k, false, false);
    });
  }
  EXPECT_EQ(early, 0);
}

TEST_P(SimulatedDependentKernels, MustWait) {
  EXPECT_VIOLATION(run([&] {
                     launch(0, false);
                     launch(0, true, false);
                   }),
                   "a dependent kernel ends without a wait");
}

struct Double {
  float* value;
  void operator()(std::int64_t i) const { value[i] = 2 * value[i] + 1; }
};

TEST_P(SimulatedDependentKernels, LaunchedByABlockWait) {
  void *memory = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 1024), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(&pinned, 1024, 0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 0, 1024, stream), cudaSuccess);
  cuda::LaunchContext context{stream, 1};
  context.dependent = true;
  run([&] {
    for (int k = 0; k < 10; ++k) cuda::for_each(context, 256, Double{static_cast<float*>(memory)});
    EXPECT_EQ(cudaMemcpyAsync(pinned, memory, 1024, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  });
  for (int i = 0; i < 256; ++i) EXPECT_EQ(static_cast<float*>(pinned)[i], 1023);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(, SimulatedDependentKernels, testing::Bool(),
                         [](const auto& info) { return info.param ? "InGraphs" : "OneByOne"; });

}  // namespace dependent_launch_test
}  // namespace millrace::test
