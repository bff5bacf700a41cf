// Each rule of the simulated CUDA, broken by a small program.
#include "simulated_cuda/rules.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <thread>

#include "cuda/block/block.hpp"
#include "simulated_cuda/simulator.hpp"

namespace millrace::test {
namespace rules_test {

using cuda::for_each;
using cuda::LaunchContext;

struct Add {
  float* to;
  float value;
  void operator()(std::int64_t i) const { to[i] += value; }
};

// Two streams, an event, and device memory of 256 floats that are zero.
class SimulatedCuda : public testing::Test {
 protected:
  SimulatedCuda() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // after a fork() the threads of the streams would be missing
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    for (cudaStream_t* s : {&first, &second})
      EXPECT_EQ(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, bytes), cudaSuccess);
    device = static_cast<float*>(p);
    EXPECT_EQ(cudaHostAlloc(&p, bytes, 0), cudaSuccess);
    pinned = static_cast<float*>(p);
    EXPECT_EQ(cudaMemsetAsync(device, 0, bytes, first), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(first), cudaSuccess);
  }
  ~SimulatedCuda() override {
    EXPECT_EQ(cudaFree(device), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    for (const cudaStream_t s : {first, second}) EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
  }
  void add(cudaStream_t stream, float value) { for_each(LaunchContext{stream, 1}, count, Add{device, value}); }
  // The values on the device, which must be equal.
  float value() {
    EXPECT_EQ(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, first), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(first), cudaSuccess);
    for (int i = 1; i < count; ++i) EXPECT_EQ(pinned[i], pinned[0]);
    return pinned[0];
  }
  void begin() { ASSERT_EQ(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal), cudaSuccess); }
  cudaGraphExec_t end() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t out = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(first, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&out, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return out;
  }
  // Makes the second stream part of the capture of the first one.
  void fork() {
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(second, event, 0);
  }
  void join() {
    cudaEventRecord(event, second);
    cudaStreamWaitEvent(first, event, 0);
  }

  static constexpr int count = 256;
  static constexpr std::size_t bytes = count * sizeof(float);
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t event = nullptr;
  float *device = nullptr, *pinned = nullptr;
};

using SimulatedStreams = SimulatedCuda;

TEST_F(SimulatedStreams, RunWorkInOrder) {
  for (int i = 1; i <= 100; ++i) add(first, 1);
  EXPECT_EQ(value(), 100);
}

TEST_F(SimulatedStreams, WaitForEvents) {
  for (int i = 0; i < 50; ++i) {
    add(first, 1);
    fork();
    add(second, 1);
    join();
  }
  EXPECT_EQ(value(), 100);
}

TEST_F(SimulatedStreams, TakeAFreshEventAsDone) {
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(first, event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(SimulatedStreams, CopyPinnedMemoryWhenTheirTurnComes) {
  pinned[0] = 5;
  simulated::enqueue(first, "a long kernel", [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  cudaMemcpyAsync(device, pinned, sizeof(float), cudaMemcpyHostToDevice, first);
  pinned[0] = 7;  // too early: the copy has not been made
  cudaMemcpyAsync(pinned + 1, device, sizeof(float), cudaMemcpyDeviceToHost, first);
  cudaStreamSynchronize(first);
  EXPECT_EQ(pinned[1], 7);
}

TEST_F(SimulatedStreams, StagePageableMemoryAtTheCall) {
  float source = 5;
  simulated::enqueue(first, "a long kernel", [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  cudaMemcpyAsync(device, &source, sizeof source, cudaMemcpyHostToDevice, first);
  source = 7;
  float out = 0;
  cudaMemcpyAsync(&out, device, sizeof out, cudaMemcpyDeviceToHost, first);
  EXPECT_EQ(out, 5);
}

TEST_F(SimulatedStreams, ReportUnfinishedWork) {
  simulated::enqueue(first, "a long kernel", [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  EXPECT_EQ(cudaStreamQuery(first), cudaErrorNotReady);
  EXPECT_VIOLATION(add(first, 1), "kernel on stream .*left the error 600");
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  add(first, 1);
  EXPECT_EQ(value(), 1);
}

TEST_F(SimulatedStreams, RefuseWhatIsUndefined) {
  EXPECT_VIOLATION(device[0] = 1, "the host: touches .* memory of the GPU");
  EXPECT_VIOLATION(std::thread([&] { add(first, 1); }).join(), "has not chosen a GPU");
  EXPECT_VIOLATION(
      {
        cudaSetDevice(1);
        add(first, 1);
      },
      "belongs to GPU 0, the thread uses GPU 1");
  EXPECT_VIOLATION(
      {
        cudaStreamDestroy(second);
        add(second, 1);
      },
      "does not exist");
  EXPECT_VIOLATION(
      {
        simulated::enqueue(first, "a host function", [] { cudaGetLastError(), cudaSetDevice(0); });
        cudaStreamSynchronize(first);
      },
      "called by work that runs in a stream");
  EXPECT_VIOLATION(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyDeviceToHost, first), "kind of copy contradicts");
  EXPECT_VIOLATION(cudaMemcpyAsync(device, pinned, bytes + 1, cudaMemcpyHostToDevice, first), "beyond an allocation");
  float milliseconds = 0;
  EXPECT_VIOLATION(cudaEventElapsedTime(&milliseconds, event, event), "never recorded");
  EXPECT_VIOLATION(cudaFree(device + 1), "no allocation");
}

using SimulatedCaptures = SimulatedCuda;

TEST_F(SimulatedCaptures, ComputeNothing) {
  begin();
  add(first, 1);
  const auto graph = end();
  EXPECT_EQ(value(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(graph, first), cudaSuccess);
  EXPECT_EQ(value(), 3);
  cudaGraphExecDestroy(graph);
}

// A graph has the arguments that its kernels had at the capture.
TEST_F(SimulatedCaptures, KeepTheArgumentsOfKernels) {
  float step = 1;
  begin();
  add(first, step);
  const auto graph = end();
  step = 100;
  cudaGraphLaunch(graph, first);
  EXPECT_EQ(value(), 1);
  cudaGraphExecDestroy(graph);
}

TEST_F(SimulatedCaptures, KeepTheOrderOfForksAndJoins) {
  begin();
  for (int i = 0; i < 20; ++i) {
    add(first, 1);
    fork();
    add(second, 1);
    join();
  }
  const auto graph = end();
  for (int i = 0; i < 10; ++i) cudaGraphLaunch(graph, first);
  EXPECT_EQ(value(), 400);
  cudaGraphExecDestroy(graph);
}

// Two branches without an order between them lose additions in some launch.
TEST_F(SimulatedCaptures, RunUnorderedBranchesInAnyOrder) {
  begin();
  fork();
  for_each(LaunchContext{first, 1}, count, Add{device, 1});
  simulated::enqueue(second, "doubling", [p = device] {
    for (int i = 0; i < count; ++i) p[i] *= 2;
  });
  join();
  const auto graph = end();
  std::set<float> results;
  for (int i = 0; i < 20; ++i) {
    cudaMemsetAsync(device, 0, bytes, first);
    cudaGraphLaunch(graph, first);
    results.insert(value());
  }
  EXPECT_EQ(results, (std::set<float>{1, 2}));
  cudaGraphExecDestroy(graph);
}

TEST_F(SimulatedCaptures, RecordAndAwaitExternalEvents) {
  cudaEvent_t outside = nullptr;
  cudaEventCreate(&outside);
  begin();
  cudaStreamWaitEvent(first, outside, cudaEventWaitExternal);
  add(first, 1);
  cudaEventRecordWithFlags(event, first, cudaEventRecordExternal);
  const auto graph = end();
  for (int i = 0; i < 5; ++i) {
    simulated::enqueue(second, "a copy", [p = device] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      p[0] += 1;
    });
    cudaEventRecord(outside, second);
    cudaGraphLaunch(graph, first);
    EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
    cudaMemcpyAsync(pinned, device, sizeof(float), cudaMemcpyDeviceToHost, first);
    cudaStreamSynchronize(first);
    EXPECT_EQ(pinned[0], 2 * (i + 1));
  }
  cudaGraphExecDestroy(graph);
  cudaEventDestroy(outside);
}

TEST_F(SimulatedCaptures, RefuseWhatInvalidatesThem) {
  const auto captured = [&](const auto& body) {
    begin();
    add(first, 1);
    body();
  };
  EXPECT_VIOLATION(captured([&] { cudaStreamSynchronize(first); }), "not allowed while this thread captures");
  EXPECT_VIOLATION(captured([&] { std::thread([&] { cudaSetDevice(0), cudaStreamQuery(first); }).join(); }),
                   "cudaStreamQuery on stream .*in a capture, which this call invalidates");
  EXPECT_VIOLATION(captured([&] { std::thread([&] { cudaSetDevice(0), cudaDeviceSynchronize(); }).join(); }),
                   "a stream of the GPU is in a capture");
  void* p = nullptr;
  EXPECT_VIOLATION(captured([&] { cudaMalloc(&p, 1); }), "cudaMalloc: is not allowed while this thread captures");
  EXPECT_VIOLATION(captured([&] { cudaEventQuery(event); }), "not allowed while this thread captures");
  EXPECT_VIOLATION(captured([&] {
                     fork();
                     std::thread([&] { cudaSetDevice(0), cudaEventQuery(event); }).join();
                   }),
                   "last recorded in a capture, which this call invalidates");
  EXPECT_VIOLATION(captured([&] {
                     fork();
                     add(second, 1);
                     end();
                   }),
                   "'.*Add.*' was captured here and not joined");
  EXPECT_VIOLATION(captured([&] { cudaStreamWaitEvent(first, event, 0); }), "the external flag is missing");
  EXPECT_VIOLATION(captured([&] {
                     float pageable = 0;
                     cudaMemcpyAsync(device, &pageable, 4, cudaMemcpyHostToDevice, first);
                   }),
                   "pageable memory in a capture");
  EXPECT_VIOLATION(captured([&] {
                     std::thread([&] {
                       cudaSetDevice(0);
                       cudaGraph_t graph = nullptr;
                       cudaStreamEndCapture(first, &graph);
                     }).join();
                   }),
                   "another thread began the capture");
  EXPECT_VIOLATION(cudaEventRecordWithFlags(event, first, cudaEventRecordExternal), "flag outside of a capture");
  EXPECT_VIOLATION(captured([&] {
                     cudaEventRecord(event, first);
                     end();
                     cudaStreamWaitEvent(second, event, 0);
                   }),
                   "a capture that has ended");
}

}  // namespace rules_test
}  // namespace millrace::test
