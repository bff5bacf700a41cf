// What src/cuda makes of CUPTI's records, and the rules of the simulated CUPTI.
#include "cuda/runtime/cupti.hpp"

#include <cupti.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>

#include "cuda/block/block.hpp"
#include "cuda/errors/error_context.hpp"
#include "simulated_cuda/simulator.hpp"

namespace millrace::cuda {
namespace cupti_test {

using Kind = Activity::Kind;

struct Increment {
  float* to;
  void operator()(std::int64_t i) const { to[i] += 1; }
};

// A stream and 256 floats on the GPU.
class SimulatedCupti : public testing::Test {
 protected:
  SimulatedCupti() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    cudaSetDevice(0);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    void* p = nullptr;
    cudaMalloc(&p, bytes);
    device = static_cast<float*>(p);
    cudaHostAlloc(&p, bytes, 0);
    pinned = static_cast<float*>(p);
  }
  ~SimulatedCupti() override {
    cudaFree(device);
    cudaFreeHost(pinned);
    cudaStreamDestroy(stream);
  }
  void increment() { for_each(LaunchContext{stream, 1}, count, Increment{device}); }
  void copy() { cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream); }
  cudaGraphExec_t captured_increment() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    increment();
    copy();
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    return exec;
  }

  static constexpr int count = 256;
  static constexpr std::size_t bytes = count * sizeof(float);
  cudaStream_t stream = nullptr;
  float *device = nullptr, *pinned = nullptr;
};

TEST_F(SimulatedCupti, RecordsBecomeActivitiesAndLaunchesKnowTheirOperation) {
  std::string why_not;
  auto tracer = make_cupti_tracer(&why_not);
  ASSERT_TRUE(tracer) << why_not;
  EXPECT_FALSE(make_cupti_tracer(&why_not)) << "only one tracer can exist at a time";
  const char* const label = "conv1 forward";
  increment();  // before the trace
  for (int trace = 0; trace < 2; ++trace) {
    tracer->start();
    error_context::push_label(label);
    cudaMemsetAsync(device, 0, bytes, stream);
    increment();
    simulated::enqueue(
        stream, "a sum", [] {},
        {simulated::Activity::Kind::kernel, "_Z17ncclDevKernel_XYZ24ncclDevKernelArgsStorageILm4096EE", 0});
    error_context::pop_label();
    copy();
    cudaStreamSynchronize(stream);
    std::vector<Activity> seen = tracer->stop();
    ASSERT_EQ(seen.size(), 4u);
    EXPECT_EQ(seen[0].name, "memset");
    EXPECT_NE(seen[1].name.find("Increment"), seen[1].name.npos) << seen[1].name;
    EXPECT_EQ(seen[2].name, "ncclDevKernel_XYZ");
    const Kind kinds[] = {Kind::kernel, Kind::kernel, Kind::sum, Kind::copy};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(seen[i].kind, kinds[i]) << i;
      EXPECT_EQ(seen[i].label, i < 3 ? label : nullptr);
      EXPECT_EQ(seen[i].label_instance == seen[0].label_instance, i < 3);
      EXPECT_GE(seen[i].ended, seen[i].began);
      EXPECT_GE(seen[i].began, i == 0 ? 1 : seen[i - 1].ended) << "a stream runs one after the other";
    }
  }
}

TEST_F(SimulatedCupti, ReplayedNodesHaveActivitiesOfTheirOwnWithoutAnOperation) {
  auto tracer = make_cupti_tracer(nullptr);
  tracer->start();
  error_context::push_label("a capture");
  const cudaGraphExec_t exec = captured_increment();
  error_context::pop_label();
  cudaStreamSynchronize(stream);
  EXPECT_EQ(tracer->stop().size(), 0u) << "a capture computes nothing";
  tracer->start();
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, stream);
  cudaStreamSynchronize(stream);
  const std::vector<Activity> seen = tracer->stop();
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](const Activity& a) { return a.kind == Kind::copy; }), 3);
  for (const Activity& a : seen) EXPECT_EQ(a.label, nullptr);
  cudaGraphExecDestroy(exec);
}

TEST_F(SimulatedCupti, ActivitiesThatHaveNotEndedAreLeftOut) {
  auto tracer = make_cupti_tracer(nullptr);
  std::atomic<bool> goes_on{false};
  for (int trace = 0; trace < 2; ++trace) {
    tracer->start();
    increment();
    cudaStreamSynchronize(stream);
    if (trace == 0) {
      simulated::enqueue(stream, "a long kernel", [&] { goes_on.wait(false); });
      increment();
    }
    EXPECT_EQ(tracer->stop().size(), 1u) << "also work of an earlier trace, which ends in this one";
    goes_on = true;
    goes_on.notify_all();
    cudaStreamSynchronize(stream);
  }
}

TEST_F(SimulatedCupti, FullBuffersComeFromAnotherThread) {
  auto tracer = make_cupti_tracer(nullptr);
  setenv("MILLRACE_SIMULATED_DELAY", "0", 1);
  tracer->start();
  const int launches = 30000;  // more than a buffer of 4 MiB holds
  for (int i = 0; i < launches; ++i) cudaMemsetAsync(device, 0, 4, stream);
  cudaStreamSynchronize(stream);
  EXPECT_EQ(tracer->stop().size(), std::size_t(launches));
}

TEST_F(SimulatedCupti, AMissingLibraryIsReported) {
  std::string why_not;
  EXPECT_FALSE(make_cupti_tracer(&why_not, "libcupti-of-nobody.so"));
  EXPECT_EQ(why_not, "libcupti-of-nobody.so was not found. it is part of the CUDA toolkit");
}

TEST_F(SimulatedCupti, TheLibraryOfTheToolkitHasAllFunctions) {
  std::string why_not;
  auto tracer = make_cupti_tracer(&why_not, MILLRACE_CUPTI_LIBRARY);
  // Without a driver, CUPTI may refuse to attach. Even then the library must have all functions.
  if (!tracer) {
    EXPECT_EQ(why_not.find("was not found"), why_not.npos) << why_not;
    EXPECT_EQ(why_not.find("CUPTI has no"), why_not.npos) << why_not;
  }
}

// ---- the rules of the library, without src/cuda ----

struct Records {
  static inline std::vector<std::vector<CUpti_ActivityKind>> buffers;
  static inline std::size_t most_records = 0, offset = 0;
  static void CUPTIAPI request(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, 1 << 16)) + offset;
    *size = 1 << 15;
    *most = most_records;
  }
  static void CUPTIAPI complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    CUpti_Activity* record = nullptr;
    buffers.emplace_back();
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) buffers.back().push_back(record->kind);
    std::free(buffer);
  }
  static void CUPTIAPI flush_again(CUcontext, std::uint32_t, std::uint8_t*, std::size_t, std::size_t) {
    cuptiActivityFlushAll(0);
  }
  static std::vector<CUpti_ActivityKind> all() {
    std::vector<CUpti_ActivityKind> out;
    for (const auto& b : buffers) out.insert(out.end(), b.begin(), b.end());
    return out;
  }
};

// The kinds of the records of one kernel in an external region, with these kinds enabled.
std::vector<CUpti_ActivityKind> records_with(std::initializer_list<CUpti_ActivityKind> kinds,
                                             const std::function<void()>& launch) {
  Records::buffers.clear();
  EXPECT_EQ(cuptiActivityRegisterCallbacks(Records::request, Records::complete), CUPTI_SUCCESS);
  for (const auto kind : kinds) EXPECT_EQ(cuptiActivityEnable(kind), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 7), CUPTI_SUCCESS);
  launch();
  std::uint64_t last = 0;
  EXPECT_EQ(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last), CUPTI_SUCCESS);
  EXPECT_EQ(last, 7u);
  for (const auto kind : kinds) EXPECT_EQ(cuptiActivityDisable(kind), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), CUPTI_SUCCESS);
  return Records::all();
}

TEST_F(SimulatedCupti, CorrelationsComeOnlyBeforeRecordsOfCalls) {
  using Kinds = std::vector<CUpti_ActivityKind>;
  constexpr auto kernel = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, external = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                 runtime = CUPTI_ACTIVITY_KIND_RUNTIME, driver = CUPTI_ACTIVITY_KIND_DRIVER;
  const auto launch = [&] { increment(); };
  const auto from_library = [&] {
    simulated::check_enqueue("cublasLtMatmul", stream);
    simulated::enqueue(stream, "a product", [] {});
  };
  for (const auto& run : {std::function<void()>(launch), std::function<void()>(from_library)})
    EXPECT_EQ(records_with({external, kernel}, [&] { run(), cudaStreamSynchronize(stream); }), (Kinds{kernel}));
  const auto then_wait = [&](const auto& run) {
    return [&] {
      run();
      cuptiActivityDisable(runtime);  // only the launch shall have a record
      cudaStreamSynchronize(stream);
    };
  };
  EXPECT_EQ(records_with({external, runtime, kernel}, then_wait(launch)), (Kinds{kernel, external, runtime}));
  EXPECT_EQ(records_with({external, runtime, kernel}, then_wait(from_library)), (Kinds{kernel}))
      << "libraries launch by the driver";
  EXPECT_EQ(records_with({external, driver, kernel}, then_wait(from_library)), (Kinds{kernel, external, driver}));
  EXPECT_EQ(records_with({runtime, kernel}, then_wait(launch)), (Kinds{kernel, runtime}));
}

TEST_F(SimulatedCupti, BuffersHoldNoMoreThanTheyShall) {
  Records::most_records = 2;
  records_with({CUPTI_ACTIVITY_KIND_MEMSET}, [&] {
    for (int i = 0; i < 5; ++i) cudaMemsetAsync(device, 0, bytes, stream);
    cudaStreamSynchronize(stream);
  });
  Records::most_records = 0;
  std::vector<std::size_t> sizes;
  for (const auto& b : Records::buffers) sizes.push_back(b.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 2, 1}));
}

TEST_F(SimulatedCupti, RefusesWhatTheDocumentationForbids) {
  EXPECT_EQ(cuptiActivityRegisterCallbacks(Records::request, nullptr), CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_INVALID), CUPTI_ERROR_INVALID_KIND);
  EXPECT_EQ(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_INVALID, 1),
            CUPTI_ERROR_INVALID_PARAMETER);
  std::uint64_t last = 0;
  EXPECT_EQ(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, &last),
            CUPTI_ERROR_QUEUE_EMPTY);
  CUpti_Activity* record = nullptr;
  EXPECT_EQ(cuptiActivityGetNextRecord(nullptr, 0, &record), CUPTI_ERROR_INVALID_PARAMETER);
  const auto ends = [](const char* rule) { return testing::ContainsRegex(rule); };
  const testing::ExitedWithCode violated(70);
  EXPECT_EXIT(_Exit(cuptiActivityFlushAll(0) == CUPTI_ERROR_INVALID_OPERATION ? 70 : 1), violated, "");
  EXPECT_EXIT(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_PC_SAMPLING), violated, ends("not simulated"));
  EXPECT_EXIT(
      {
        Records::offset = 4;
        records_with({CUPTI_ACTIVITY_KIND_RUNTIME}, [&] { cudaMemsetAsync(device, 0, bytes, stream); });
      },
      violated, ends("is not aligned to 8 bytes"));
  EXPECT_EXIT(
      {
        cuptiActivityRegisterCallbacks(Records::request, Records::flush_again);
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME);
        cudaMemsetAsync(device, 0, bytes, stream);
        cuptiActivityFlushAll(0);
      },
      violated, ends("called by a callback"));
}

}  // namespace cupti_test
}  // namespace millrace::cuda
