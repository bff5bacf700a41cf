#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace abandoned_capture_test {

// A program that gives up a capture because of an exception gets an error for the forks that it left open. In any other
// place, open forks are a violation (rules_test.cpp).
TEST(SimulatedAbandonedCapture, MayBeLeftWithOpenForks) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t event = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  for (cudaStream_t* s : {&first, &second}) ASSERT_EQ(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 0, 64, second), cudaSuccess);
  try {
    throw 0;
  } catch (int) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(first, &graph), cudaErrorStreamCaptureUnjoined);
    EXPECT_EQ(graph, nullptr);
  }
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  for (const cudaStream_t s : {first, second}) EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
}

}  // namespace abandoned_capture_test
