// What a failure on the GPU says: the operation, the rank, the step.
#include "cuda/runtime/error_context.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "cuda/runtime/check.hpp"
#include "cuda/runtime/flight_recorder.hpp"

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

TEST(Work, AFaultNamesWhatWasEnqueuedLastAndHowToKnowMore) {
  unsetenv("CUDA_LAUNCH_BLOCKING");
  afresh([] {
    error_context::set_rank(0);
    error_context::push_label("step 5");  // issued before the results of step 4 are looked at
    error_context::push_label("fc forward");
    error_context::pop_label(), error_context::pop_label();
    error_context::push_label("the results of step 4");
    const std::string text = error_context::describe_failure("cudaEventQuery(e)", cudaErrorIllegalAddress);
    EXPECT_TRUE(has(text, "on rank 0 in the results of step 4: cudaErrorIllegalAddress")) << text;
    EXPECT_TRUE(has(text, "enqueued, at the latest step 5, fc forward. cuda.graph = off")) << text;
  });
}

TEST(Work, AFaultOfARecordedStepSaysSo) {
  afresh([] {
    error_context::push_label("step 9");
    error_context::push_label("fc forward");
    error_context::pop_label();
    error_context::note_replay("micro-batch 1 of 1, 32 rows");
    const std::string text = error_context::describe_failure("cudaStreamQuery(s)", cudaErrorMisalignedAddress);
    EXPECT_TRUE(has(text, "in step 9: cudaErrorMisalignedAddress")) << text;
    EXPECT_TRUE(has(text, "at the latest step 9, the recorded micro-batch 1 of 1, 32 rows")) << text;
    EXPECT_FALSE(has(text, "fc forward")) << text;
  });
}

// The marks are written at once here.
TEST(Work, AFaultOfARecordedStepNamesTheOperationThatItsMarksTell) {
  unsetenv("CUDA_LAUNCH_BLOCKING");
  afresh([] {
    for (const auto detail :
         {FlightRecorder::Detail::each, FlightRecorder::Detail::some, FlightRecorder::Detail::none}) {
      FlightRecorder::Breadcrumb words;
      FlightRecorder flight_recorder(
          detail, &words, [&](std::uint64_t place, bool begins) { words.place = place, words.runs += begins; });
      flight_recorder.set_concurrent_work([] { return "sum 3 (25 MiB)"; });
      error_context::set_rank(2), error_context::set_flight_recorder(&flight_recorder);
      const auto failure = [] { return error_context::describe_failure("cudaEventQuery(e)", cudaErrorIllegalAddress); };
      const std::size_t number = flight_recorder.add("step of 256 rows");
      flight_recorder.enter_operation("evaluation");  // nothing is recorded
      EXPECT_EQ(words.runs, 0u);
      std::string early, first, late;
      flight_recorder.begin_run("step 9");
      {
        FlightRecorder::Recording recording(flight_recorder, number);
        for (int piece = 0; piece < 40; ++piece) {
          if (piece == 17) early = failure();  // the names that it knows are those so far
          flight_recorder.enter_operation(("op" + std::to_string(piece)).c_str());
        }
        recording.end();
      }
      EXPECT_TRUE(has(failure(), "; the fault lies in what was enqueued")) << "the step is done: " << failure();
      flight_recorder.begin_run("step 10");
      {
        FlightRecorder::Recording recording(flight_recorder, number);
        first = failure();
        for (int piece = 0; piece < 40; ++piece) {
          flight_recorder.enter_operation(("op" + std::to_string(piece)).c_str());
          if (piece == 20) late = failure();
        }
        recording.end();
      }
      const std::string front =
          "cudaEventQuery(e) on rank 2: cudaErrorIllegalAddress (an illegal memory access was encountered); ";
      const std::string call = ". cuda.graph = off with CUDA_LAUNCH_BLOCKING=1 in the environment names the call";
      const std::string crumbs = ". cuda.breadcrumbs = on names the operation";
      if (detail == FlightRecorder::Detail::each) {
        EXPECT_EQ(early, front + "the GPU was at step 9, op16, beside sum 3 (25 MiB)" + call);
        EXPECT_EQ(first, front +
                             "the GPU was at step 10, the beginning of the recorded step of 256 rows, beside sum 3 "
                             "(25 MiB)" +
                             call);
        EXPECT_EQ(late, front + "the GPU was at step 10, op20, beside sum 3 (25 MiB)" + call);
      } else if (detail == FlightRecorder::Detail::some) {
        EXPECT_EQ(early,
                  front + "the GPU was at step 9, one of the 2 from op15 to op16, beside sum 3 (25 MiB)" + crumbs);
        EXPECT_EQ(first,
                  front + "the GPU was at step 10, one of the 15 from op0 to op14, beside sum 3 (25 MiB)" + crumbs);
        EXPECT_EQ(late,
                  front + "the GPU was at step 10, one of the 16 from op15 to op30, beside sum 3 (25 MiB)" + crumbs);
      } else {
        EXPECT_EQ(words.runs + words.place, 0u);
        EXPECT_TRUE(has(late, "enqueued. cuda.graph = off")) << late;
      }
      error_context::set_flight_recorder(nullptr);
    }
  });
}

TEST(Work, BlockingLaunchesMakeAFaultExact) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  afresh([] {
    error_context::push_label("step 2");
    error_context::push_label("conv2 forward");
    const std::string text = error_context::describe_failure("cudaGetLastError()", cudaErrorIllegalAddress);
    EXPECT_TRUE(has(text, "in step 2, conv2 forward: cudaErrorIllegalAddress")) << text;
    EXPECT_FALSE(has(text, "enqueued")) << text;
  });
  unsetenv("CUDA_LAUNCH_BLOCKING");
}

TEST(Work, DeepNestsAndLongNamesAreCutNotOverrun) {
  afresh([] {
    const std::string name(500, 'n');
    for (int i = 0; i < 20; ++i) error_context::push_label(name.c_str());
    for (int i = 0; i < 20; ++i) error_context::pop_label();
    error_context::pop_label();
    EXPECT_EQ(error_context::describe_failure("call", std::string("why")), "call: why");
  });
}

}  // namespace
}  // namespace millrace::cuda
