// From CUPTI's records to activities, on a library that pretends.
#include "cuda/runtime/cupti.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "cuda/runtime/error_context.hpp"

namespace millrace::cuda {
namespace {

using Kind = Activity::Kind;

TEST(Cupti, RecordsBecomeActivitiesAndLaunchesKnowTheirOperation) {
  void* library = dlopen(MILLRACE_FAKE_CUPTI, RTLD_NOW);
  ASSERT_TRUE(library) << dlerror();
  const auto state = reinterpret_cast<int (*)()>(dlsym(library, "fake_cupti_state"));
  std::string why_not;
  auto watch = make_cupti_tracer(&why_not, MILLRACE_FAKE_CUPTI);
  ASSERT_TRUE(watch) << why_not;
  EXPECT_FALSE(make_cupti_tracer(&why_not, MILLRACE_FAKE_CUPTI)) << "one a process";

  const char* const conv = "conv1 forward";
  for (int window = 0; window < 2; ++window) {
    watch->start();
    EXPECT_GE(state(), 4);
    if (window == 0) {  // the second is a replay: nothing is entered
      error_context::push_label(conv);
      error_context::pop_label();
    }
    const std::vector<Activity> seen = watch->stop();
    EXPECT_EQ(state(), 0);
    ASSERT_EQ(seen.size(), 6u) << "what has not ended, and what was not asked for, is left out";
    EXPECT_EQ(seen[0].name, "abc::transform<float>");
    EXPECT_EQ(seen[0].began, 100);
    EXPECT_EQ(seen[0].ended, 150);
    EXPECT_EQ(seen[1].name, "plain_kernel");
    EXPECT_EQ(seen[2].name, "abc::transform<float>");
    for (const int i : {0, 1}) {
      EXPECT_EQ(seen[i].work, window == 0 ? conv : nullptr);
      EXPECT_EQ(seen[i].occasion, seen[0].occasion);
    }
    EXPECT_EQ(seen[2].work, nullptr) << "launched by nobody's call";
    const Kind kinds[] = {Kind::kernel, Kind::kernel, Kind::kernel, Kind::sum, Kind::copy, Kind::kernel};
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(seen[i].kind, kinds[i]) << i;
  }
  watch.reset();
  watch = make_cupti_tracer(&why_not, MILLRACE_FAKE_CUPTI);
  EXPECT_TRUE(watch) << "the one before is gone: " << why_not;
  watch.reset();
  dlclose(library);
}

TEST(Cupti, AnAbsentLibraryIsARefusal) {
  std::string why_not;
  EXPECT_FALSE(make_cupti_tracer(&why_not, "libcupti-of-nobody.so"));
  EXPECT_EQ(why_not, "libcupti-of-nobody.so is not there: it comes with the CUDA toolkit");
}

TEST(Cupti, TheToolkitsOwnLibraryIsFoundAndHasAllThatIsUsed) {
  std::string why_not;
  auto watch = make_cupti_tracer(&why_not);
  // Without a driver it may refuse to attach, but it was loaded and had its functions.
  if (!watch) {
    EXPECT_EQ(why_not.find("is not there"), why_not.npos) << why_not;
    EXPECT_EQ(why_not.find("CUPTI has no"), why_not.npos) << why_not;
  }
}

}  // namespace
}  // namespace millrace::cuda
