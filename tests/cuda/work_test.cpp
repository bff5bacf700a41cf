// What a failure on the GPU says: the operation, the rank, the step.
#include "../../src/cuda/work.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "../../src/cuda/check.hpp"

namespace millrace::cuda {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Each case as a thread of its own: what is told belongs to a thread.
template <class F>
void afresh(F f) {
  std::thread(f).join();
}

TEST(Work, ARefusedCallNamesItsOperationTheStepAndTheRank) {
  afresh([] {
    work::set_rank(3);
    work::enter("step 17");
    work::enter("conv1 backward");
    try {
      check(cudaErrorInvalidConfiguration, "cudaLaunch(x)");
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::comm);
      const std::string text = e.what();
      EXPECT_TRUE(has(text, "cudaLaunch(x) on rank 3 in step 17, conv1 backward: cudaErrorInvalidConfiguration"))
          << text;
      EXPECT_FALSE(has(text, "enqueued")) << text;
    }
  });
}

TEST(Work, AFaultNamesWhatWasEnqueuedLastAndHowToKnowMore) {
  unsetenv("CUDA_LAUNCH_BLOCKING");
  afresh([] {
    work::set_rank(0);
    work::enter("step 5");  // issued before the results of step 4 are looked at
    work::enter("fc forward");
    work::leave(), work::leave();
    work::enter("the results of step 4");
    const std::string text = work::describe_failure("cudaEventQuery(e)", cudaErrorIllegalAddress);
    EXPECT_TRUE(has(text, "on rank 0 in the results of step 4: cudaErrorIllegalAddress")) << text;
    EXPECT_TRUE(has(text, "enqueued, at the latest step 5, fc forward. cuda.graph = off")) << text;
  });
}

TEST(Work, AFaultOfARecordedStepSaysSo) {
  afresh([] {
    work::enter("step 9");
    work::enter("fc forward");
    work::leave();
    work::replayed("micro-batch 1 of 1, 32 rows");
    const std::string text = work::describe_failure("cudaStreamQuery(s)", cudaErrorMisalignedAddress);
    EXPECT_TRUE(has(text, "in step 9: cudaErrorMisalignedAddress")) << text;
    EXPECT_TRUE(has(text, "at the latest step 9, the recorded micro-batch 1 of 1, 32 rows")) << text;
    EXPECT_FALSE(has(text, "fc forward")) << text;
  });
}

TEST(Work, BlockingLaunchesMakeAFaultExact) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  afresh([] {
    work::enter("step 2");
    work::enter("conv2 forward");
    const std::string text = work::describe_failure("cudaGetLastError()", cudaErrorIllegalAddress);
    EXPECT_TRUE(has(text, "in step 2, conv2 forward: cudaErrorIllegalAddress")) << text;
    EXPECT_FALSE(has(text, "enqueued")) << text;
  });
  unsetenv("CUDA_LAUNCH_BLOCKING");
}

TEST(Work, DeepNestsAndLongNamesAreCutNotOverrun) {
  afresh([] {
    const std::string name(500, 'n');
    for (int i = 0; i < 20; ++i) work::enter(name.c_str());
    for (int i = 0; i < 20; ++i) work::leave();
    work::leave();
    EXPECT_EQ(work::describe_failure("call", std::string("why")), "call: why");
  });
}

}  // namespace
}  // namespace millrace::cuda
