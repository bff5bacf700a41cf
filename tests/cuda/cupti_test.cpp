// The conversion of CUPTI's records to activities, with a fake CUPTI (support/fake_cupti.cpp).
#include "cuda/runtime/cupti.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "cuda/errors/error_context.hpp"

namespace millrace::cuda {
namespace {

using Kind = Activity::Kind;

TEST(Cupti, RecordsBecomeActivitiesAndLaunchesKnowTheirOperation) {
  void* library = dlopen(MILLRACE_FAKE_CUPTI, RTLD_NOW);
  ASSERT_TRUE(library) << dlerror();
  const auto state = reinterpret_cast<int (*)()>(dlsym(library, "fake_cupti_state"));
  std::string why_not;
  auto tracer = make_cupti_tracer(&why_not, MILLRACE_FAKE_CUPTI);
  ASSERT_TRUE(tracer) << why_not;
  EXPECT_FALSE(make_cupti_tracer(&why_not, MILLRACE_FAKE_CUPTI)) << "only one tracer can exist at a time";

  const char* const conv = "conv1 forward";
  for (int trace = 0; trace < 2; ++trace) {
    tracer->start();
    EXPECT_GE(state(), 4);
    if (trace == 0) {  // the second trace is of a replay, which pushes no labels
      error_context::push_label(conv);
      error_context::pop_label();
    }
    const std::vector<Activity> seen = tracer->stop();
    EXPECT_EQ(state(), 0);
    ASSERT_EQ(seen.size(), 6u) << "activities that have not ended, and records of other kinds, are left out";
    EXPECT_EQ(seen[0].name, "abc::transform<float>");
    EXPECT_EQ(seen[0].began, 100);
    EXPECT_EQ(seen[0].ended, 150);
    EXPECT_EQ(seen[1].name, "plain_kernel");
    EXPECT_EQ(seen[2].name, "abc::transform<float>");
    for (const int i : {0, 1}) {
      EXPECT_EQ(seen[i].label, trace == 0 ? conv : nullptr);
      EXPECT_EQ(seen[i].label_instance, seen[0].label_instance);
    }
    EXPECT_EQ(seen[2].label, nullptr) << "it was launched without a label";
    const Kind kinds[] = {Kind::kernel, Kind::kernel, Kind::kernel, Kind::sum, Kind::copy, Kind::kernel};
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(seen[i].kind, kinds[i]) << i;
  }
  tracer.reset();
  tracer = make_cupti_tracer(&why_not, MILLRACE_FAKE_CUPTI);
  EXPECT_TRUE(tracer) << "the previous tracer was destroyed: " << why_not;
  tracer.reset();
  dlclose(library);
}

TEST(Cupti, AMissingLibraryIsReported) {
  std::string why_not;
  EXPECT_FALSE(make_cupti_tracer(&why_not, "libcupti-of-nobody.so"));
  EXPECT_EQ(why_not, "libcupti-of-nobody.so was not found. it is part of the CUDA toolkit");
}

TEST(Cupti, TheLibraryOfTheToolkitIsFoundAndHasAllFunctions) {
  std::string why_not;
  auto tracer = make_cupti_tracer(&why_not);
  // Without a driver, CUPTI may refuse to attach. Even then the library must be found and must have all functions.
  if (!tracer) {
    EXPECT_EQ(why_not.find("was not found"), why_not.npos) << why_not;
    EXPECT_EQ(why_not.find("CUPTI has no"), why_not.npos) << why_not;
  }
}

}  // namespace
}  // namespace millrace::cuda
