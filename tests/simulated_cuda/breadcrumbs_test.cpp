// A kernel that fails in a step, launched one by one or replayed as a graph, whose nodes run in any order that their
// dependencies allow. The message must name the step and the operation.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "cuda/errors/check.hpp"
#include "cuda/runtime/device.hpp"
#include "cuda/runtime/record_breadcrumb.hpp"
#include "simulated_cuda/runtime.hpp"

namespace millrace::test {
namespace breadcrumbs_test {

using cuda::FlightRecorder;

constexpr int operations = 20;

// The kernel of an operation: the one of this operation in this step fails.
struct Operation {
  std::atomic<int>* step;
  int number, failing_step, failing_number;
  void operator()(std::int64_t) const {
    if (number == 0) ++*step;
    if (*step == failing_step && number == failing_number) simulated::lose_context();
  }
};

// Runs steps until one fails, and ends the process: 0 if the message has what it should.
[[noreturn]] void run_until(int failing_step, int failing_number, FlightRecorder::Detail detail, bool graph) {
  cuda::DeviceOptions options;
  options.graph = graph;
  options.breadcrumbs = detail;
  cuda::CudaDevice device(0, options);
  std::atomic<int> steps{0};
  const auto step = device.capture("step of 4 rows", [&] {
    for (int i = 0; i < operations; ++i) {
      const ScopedLabel here(device, ("operation " + std::to_string(i) + ";").c_str());
      for_each(cuda::LaunchContext{device.stream(Stream::compute), 1}, 1,
               Operation{&steps, i, failing_step, failing_number});
    }
  });
  std::string message = "no fault";
  try {
    for (const char* name : {"step 1", "step 2", "step 3", "step 4"}) {
      const ScopedLabel here(device, name);
      step->run();
      device.synchronize();
    }
  } catch (const Error& e) {
    message = e.what();
  }
  const auto has = [&](const std::string& text) { return message.find(text) != message.npos; };
  bool right = has("the GPU was at step " + std::to_string(failing_step) + ",");
  if (detail == FlightRecorder::Detail::each) {
    right = right && has("operation " + std::to_string(failing_number) + ";");
    if (!graph || failing_step == 1) right = right && !has("; or ");
  } else {
    right = right && has(failing_number < 15 ? "from operation 0;" : "operation 19;");
  }
  std::fprintf(stderr, "%s\n", message.c_str());
  std::_Exit(right ? 0 : 1);
}

TEST(SimulatedBreadcrumbs, NameTheOperationOfAKernelThatFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  using Detail = FlightRecorder::Detail;
  int seed = 1;
  for (const int failing_step : {1, 2, 4})  // launched one by one; the first replay; a later one
    for (const int failing_number : {0, 1, 2, 9, 15, 19}) {
      setenv("MILLRACE_SIMULATED_SEED", std::to_string(++seed).c_str(), 1);
      EXPECT_EXIT(run_until(failing_step, failing_number, Detail::each, true), testing::ExitedWithCode(0), "")
          << failing_step << " " << failing_number;
    }
  EXPECT_EXIT(run_until(3, 5, Detail::each, false), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run_until(3, 5, Detail::some, true), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run_until(3, 16, Detail::some, true), testing::ExitedWithCode(0), "");
}

TEST(SimulatedBreadcrumbs, AreKnownByTheNameOfTheirKernel) {
  EXPECT_TRUE(cuda::is_breadcrumb(
      "_ZN8millrace4cuda12block_kernelILi256ELi4ENS0_4EachINS0_73_GLOBAL__N__16RecordBreadcrumbEEEEEvT1_"));
  EXPECT_TRUE(cuda::is_breadcrumb("millrace::cuda::Each<millrace::cuda::(anonymous namespace)::RecordBreadcrumb>"));
  EXPECT_FALSE(cuda::is_breadcrumb("millrace::cuda::Each<millrace::cuda::(anonymous namespace)::IncrementCounter>"));
}

}  // namespace breadcrumbs_test
}  // namespace millrace::test
