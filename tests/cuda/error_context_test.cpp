// The message of a failure on the GPU names the operation, the rank and the step.
#include "cuda/errors/error_context.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "cuda/errors/check.hpp"
#include "cuda/errors/flight_recorder.hpp"

namespace millrace::cuda {
namespace error_context_test {

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Each case runs in a new thread, because labels belong to a thread.
template <class F>
void in_new_thread(F f) {
  std::thread(f).join();
}

TEST(ErrorContext, AFailedCallNamesItsOperationTheStepAndTheRank) {
  in_new_thread([] {
    error_context::set_rank(3);
    error_context::push_label("step 17");
    error_context::push_label("conv1 backward");
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

TEST(ErrorContext, AFaultNamesTheWorkEnqueuedLastAndHowToFindOutMore) {
  unsetenv("CUDA_LAUNCH_BLOCKING");
  in_new_thread([] {
    error_context::set_rank(0);
    error_context::push_label("step 5");  // enqueued before the host reads the results of step 4
    error_context::push_label("fc forward");
    error_context::pop_label();
    error_context::pop_label();
    error_context::push_label("the results of step 4");
    const std::string text = error_context::describe_failure("cudaEventQuery(e)", cudaErrorIllegalAddress);
    EXPECT_TRUE(has(text, "on rank 0 in the results of step 4: cudaErrorIllegalAddress")) << text;
    EXPECT_TRUE(has(text, "enqueued earlier, at the latest in step 5, fc forward. cuda.graph = off")) << text;
  });
}

TEST(ErrorContext, AFaultInACapturedStepNamesTheStep) {
  in_new_thread([] {
    error_context::push_label("step 9");
    error_context::push_label("fc forward");
    error_context::pop_label();
    error_context::note_replay("micro-batch 1 of 1, 32 rows");
    const std::string text = error_context::describe_failure("cudaStreamQuery(s)", cudaErrorMisalignedAddress);
    EXPECT_TRUE(has(text, "in step 9: cudaErrorMisalignedAddress")) << text;
    EXPECT_TRUE(has(text, "at the latest in step 9, the captured micro-batch 1 of 1, 32 rows")) << text;
    EXPECT_FALSE(has(text, "fc forward")) << text;
  });
}

// The messages of a fault at three moments of a captured step with 40 operations. Here the "GPU" writes a breadcrumb as
// soon as it is enqueued.
struct FaultMessages {
  std::string first_run;   // run 1, after operation 16; the later operations are not known yet
  std::string beginning;   // run 2, before the first operation
  std::string second_run;  // run 2, after operation 20
  FlightRecorder::Breadcrumb breadcrumb;
};

FaultMessages faults_of_a_captured_step(FlightRecorder::Detail detail) {
  FaultMessages out;
  FlightRecorder::Breadcrumb& breadcrumb = out.breadcrumb;
  FlightRecorder recorder(detail, &breadcrumb, [&](std::uint64_t place, FlightRecorder::Write what) {
    breadcrumb.place = place;
    breadcrumb.runs += what == FlightRecorder::Write::begin;
  });
  recorder.set_concurrent_work([] { return "all-reduce 3 (25 MiB)"; });
  error_context::set_rank(2);
  error_context::set_flight_recorder(&recorder);
  const auto failure = [] { return error_context::describe_failure("cudaEventQuery(e)", cudaErrorIllegalAddress); };
  const std::size_t number = recorder.add("step of 256 rows");
  recorder.enter_operation("evaluation");  // outside of a step
  EXPECT_EQ(breadcrumb.runs, 0u);
  recorder.begin_run("step 9");
  {
    FlightRecorder::Recording recording(recorder, number, FlightRecorder::Launch::one_by_one);
    for (int i = 0; i < 40; ++i) {
      if (i == 17) out.first_run = failure();
      recorder.enter_operation(("op" + std::to_string(i)).c_str());
    }
    recording.end();
  }
  EXPECT_TRUE(has(failure(), "; the fault is in work that was enqueued earlier")) << "the step is done: " << failure();
  recorder.begin_run("step 10");
  {
    FlightRecorder::Recording recording(recorder, number, FlightRecorder::Launch::one_by_one);
    out.beginning = failure();
    for (int i = 0; i < 40; ++i) {
      recorder.enter_operation(("op" + std::to_string(i)).c_str());
      if (i == 20) out.second_run = failure();
    }
    recording.end();
  }
  error_context::set_flight_recorder(nullptr);
  return out;
}

const std::string fault_front =
    "cudaEventQuery(e) on rank 2: cudaErrorIllegalAddress (an illegal memory access was encountered); ";
const std::string concurrent = ", while all-reduce 3 (25 MiB) was running";

TEST(ErrorContext, BreadcrumbsNameTheOperationOfAFault) {
  unsetenv("CUDA_LAUNCH_BLOCKING");
  in_new_thread([] {
    const FaultMessages m = faults_of_a_captured_step(FlightRecorder::Detail::each);
    const std::string rest =
        concurrent + ". cuda.graph = off with CUDA_LAUNCH_BLOCKING=1 in the environment shows the call";
    EXPECT_EQ(m.first_run, fault_front + "the GPU was at step 9, op16" + rest);
    EXPECT_EQ(m.beginning,
              fault_front + "the GPU was at step 10, the beginning of the captured step of 256 rows" + rest);
    EXPECT_EQ(m.second_run, fault_front + "the GPU was at step 10, op20" + rest);
  });
}

TEST(ErrorContext, EverySixteenthBreadcrumbNamesARangeOfOperations) {
  unsetenv("CUDA_LAUNCH_BLOCKING");
  in_new_thread([] {
    const FaultMessages m = faults_of_a_captured_step(FlightRecorder::Detail::some);
    const std::string rest = concurrent + ". cuda.breadcrumbs = on shows the operation";
    EXPECT_EQ(m.first_run, fault_front + "the GPU was at step 9, one of the 2 from op15 to op16" + rest);
    EXPECT_EQ(m.beginning, fault_front + "the GPU was at step 10, one of the 15 from op0 to op14" + rest);
    EXPECT_EQ(m.second_run, fault_front + "the GPU was at step 10, one of the 16 from op15 to op30" + rest);
  });
}

// In a graph the breadcrumbs are on a branch, and the next operation but one waits for each of them.
TEST(ErrorContext, BreadcrumbsOfAGraphNameTwoOperations) {
  using Write = FlightRecorder::Write;
  for (const auto detail : {FlightRecorder::Detail::each, FlightRecorder::Detail::some}) {
    FlightRecorder::Breadcrumb breadcrumb;
    std::vector<Write> writes;
    FlightRecorder recorder(detail, &breadcrumb, [&](std::uint64_t place, Write what) {
      writes.push_back(what);
      if (what != Write::join) breadcrumb.place = place;
    });
    const std::size_t number = recorder.add("step of 256 rows");
    std::vector<std::string> places;
    const auto enter = [&](int count) {
      for (int i = 0; i < count; ++i) recorder.enter_operation(("op" + std::to_string(i)).c_str());
    };
    for (int run = 0; run < 2; ++run) {  // the names of later operations are known in the second run
      writes.clear();
      places.clear();
      FlightRecorder::Recording recording(recorder, number, FlightRecorder::Launch::as_graph);
      for (int i = 0; i < 40; ++i) {
        places.push_back(recorder.place()->text);
        recorder.enter_operation(("op" + std::to_string(i)).c_str());
      }
      places.push_back(recorder.place()->text);
      recording.end();
    }
    const bool each = detail == FlightRecorder::Detail::each;
    EXPECT_EQ(places[0], each ? "op0" : "one of the 16 from op0 to op15");
    EXPECT_EQ(places[20], each ? "op19 or op20" : "one of the 17 from op15 to op31");
    EXPECT_EQ(places[40], each ? "op39" : "one of the 9 from op31 to op39");
    std::vector<Write> expected{Write::begin};
    for (int i = 0; i < (each ? 40 : 2); ++i) expected.insert(expected.end(), {Write::on_branch, Write::join});
    expected.push_back(Write::in_stream);
    EXPECT_EQ(writes, expected);
    writes.clear();
    {
      const FlightRecorder::Recording abandoned(recorder, number, FlightRecorder::Launch::as_graph);
      enter(each ? 1 : 16);
    }
    EXPECT_EQ(writes, (std::vector<Write>{Write::begin, Write::on_branch, Write::join})) << "after an exception";
  }
}

TEST(ErrorContext, WithoutBreadcrumbsAFaultNamesTheEnqueuedWork) {
  unsetenv("CUDA_LAUNCH_BLOCKING");
  in_new_thread([] {
    const FaultMessages m = faults_of_a_captured_step(FlightRecorder::Detail::none);
    EXPECT_EQ(m.breadcrumb.runs + m.breadcrumb.place, 0u);
    EXPECT_TRUE(has(m.second_run, "enqueued earlier. cuda.graph = off")) << m.second_run;
  });
}

TEST(ErrorContext, BlockingLaunchesMakeAFaultExact) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  in_new_thread([] {
    error_context::push_label("step 2");
    error_context::push_label("conv2 forward");
    const std::string text = error_context::describe_failure("cudaGetLastError()", cudaErrorIllegalAddress);
    EXPECT_TRUE(has(text, "in step 2, conv2 forward: cudaErrorIllegalAddress")) << text;
    EXPECT_FALSE(has(text, "enqueued")) << text;
  });
  unsetenv("CUDA_LAUNCH_BLOCKING");
}

TEST(ErrorContext, DeepNestingAndLongLabelsAreTruncated) {
  in_new_thread([] {
    const std::string name(500, 'n');
    for (int i = 0; i < 20; ++i) error_context::push_label(name.c_str());
    for (int i = 0; i < 20; ++i) error_context::pop_label();
    error_context::pop_label();
    EXPECT_EQ(error_context::describe_failure("call", std::string("why")), "call: why");
  });
}

}  // namespace error_context_test
}  // namespace millrace::cuda
