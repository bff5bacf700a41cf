// The choice of the methods of a convolution, by rule and by timing.
#include "cpu/choice/conv_selector.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "cpu/choice/time_methods.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/winograd/tiles.hpp"
#include "millrace/base/files.hpp"
#include "millrace/comm/world.hpp"
#include "millrace/compute/execution_context.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace conv_selector_test {

using cpu::ConvMethod, cpu::ConvMethods, cpu::ConvPass, cpu::ConvSelector, cpu::ConvSelectorOptions;
namespace fs = std::filesystem;

ConvSpec conv() {
  ConvSpec s;
  s.src = {4, 8, 8, 64};
  s.out_channels = 64;
  s.window = {.kernel = {3, 3, 1}, .pad = {1, 1, 0}};
  return s;
}

ConvSelectorOptions timed(double waited_a_time = 0) {
  ConvSelectorOptions out{.timing = true};
  out.waited = [waited_a_time, total = 0.0]() mutable { return total += waited_a_time; };
  return out;
}

// The user's cache folder is a new one while it lives.
class ConvSelectorFile : public ::testing::Test {
 protected:
  ConvSelectorFile() { setenv("XDG_CACHE_HOME", own_.path.c_str(), 1); }
  ~ConvSelectorFile() override {
    unsetenv("XDG_CACHE_HOME");
    cpu::set_thread_count(threads_);
  }
  fs::path file() const {
    for (const auto& entry : fs::directory_iterator(own_.path / "millrace")) return entry.path();
    return {};
  }
  bool has_file() const { return fs::exists(own_.path / "millrace"); }
  // Replaces each plan in the file.
  void set_plans(const std::string& plan) const {
    std::string text = read_file(file());
    for (std::size_t at = 0; (at = text.find("\"plan\":\"", at)) != text.npos; at += 8)
      text.replace(at + 8, text.find('"', at + 8) - at - 8, plan);
    write_file_atomically(file(), text);
  }
  const test::TemporaryFolder own_;
  const int threads_ = cpu::thread_count();
};

TEST_F(ConvSelectorFile, RulesReadAndWriteNoFile) {
  ConvSelector selector({});
  const ConvMethods m = selector.methods(conv());
  EXPECT_EQ(m.forward, ConvMethod::rule);
  EXPECT_TRUE(m.winograd);
  EXPECT_EQ(m.note, "");
  EXPECT_FALSE(ConvSelector({.winograd = false}).methods(conv()).winograd);
  EXPECT_FALSE(has_file());
}

TEST_F(ConvSelectorFile, TimedChoicesAreKept) {
  const ConvMethods first = ConvSelector(timed()).methods(conv());
  EXPECT_NE(first.forward, ConvMethod::rule);
  EXPECT_NE(first.note.find("; timed: forward "), std::string::npos) << first.note;
  EXPECT_NE(first.note.find("; weights "), std::string::npos) << first.note;
  ASSERT_TRUE(has_file());
  // What is in the file is used, so the second start does not time.
  set_plans("F(2x2)=0.0015|direct=0.003|kn2row=0.004");
  const ConvMethods kept = ConvSelector(timed()).methods(conv());
  EXPECT_EQ(kept.data, ConvMethod::winograd_2);
  EXPECT_EQ(kept.note,
            "; timed: forward F(2x2) 1.5 ms, then direct 3; data F(2x2) 1.5 ms, then direct 3; weights F(2x2) 1.5 ms, "
            "then direct 3");
  set_plans("unknown=0.001");
  EXPECT_EQ(ConvSelector(timed()).methods(conv()).forward, ConvMethod::rule);
}

TEST_F(ConvSelectorFile, EntriesBelongToShapeTypeThreadsAndVersion) {
  ConvSelector(timed()).methods(conv());
  set_plans("kn2row=0.001");
  const auto is_known = [](const ConvSpec& s) {
    ConvSelectorOptions no_time = timed();
    no_time.most_seconds = 0;
    return ConvSelector(no_time).methods(s).forward == ConvMethod::kn2row;
  };
  ConvSpec wider = conv(), half = conv(), more = conv();
  wider.out_channels = 80;
  half.dtype = DType::bf16;
  more.src[0] = 5;
  EXPECT_TRUE(is_known(conv()));
  for (const ConvSpec& other : {wider, half, more}) EXPECT_FALSE(is_known(other));
  EXPECT_NE(file().filename().string().find("millrace-"), std::string::npos);
  EXPECT_NE(file().filename().string().find("onednn-"), std::string::npos);
  cpu::set_thread_count(threads_ + 1);
  EXPECT_FALSE(is_known(conv()));
}

TEST_F(ConvSelectorFile, ChoicesMadeBesideOtherProgramsAreMarkedAndMadeAgain) {
  const ConvMethods disturbed = ConvSelector(timed(1e6)).methods(conv());
  EXPECT_NE(disturbed.note.find("(other work had 100 % of the cores)"), std::string::npos) << disturbed.note;
  for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weights})
    EXPECT_EQ(ConvMethods(disturbed).of(pass), cpu::candidates_for(conv(), pass, true)[0]) << "the rule's";
  EXPECT_NE(read_file(file()).find("\"other_work\":"), std::string::npos);
  set_plans("kn2row=0.001|direct=0.002");
  ConvSelectorOptions no_time = timed();
  no_time.most_seconds = 0;
  EXPECT_EQ(ConvSelector(no_time).methods(conv()).forward, ConvMethod::rule) << "what is marked is not used";
  const ConvMethods again = ConvSelector(timed()).methods(conv());
  EXPECT_EQ(again.note.find("other work"), std::string::npos) << again.note;
  EXPECT_EQ(read_file(file()).find("\"other_work\":"), std::string::npos);
  set_plans("kn2row=0.001|direct=0.002");
  EXPECT_EQ(ConvSelector(timed(1e6)).methods(conv()).forward, ConvMethod::kn2row) << "it is kept now";
}

TEST_F(ConvSelectorFile, RulesChooseWhenTheTimeIsUsedUp) {
  ConvSelectorOptions options = timed();
  options.most_seconds = 1e-9;
  ConvSelector selector(options);
  ConvSpec other = conv();
  other.src[0] = 2;
  EXPECT_NE(selector.methods(conv()).forward, ConvMethod::rule);
  const ConvMethods late = selector.methods(other);
  EXPECT_EQ(late.forward, ConvMethod::rule);
  EXPECT_TRUE(late.winograd);
  EXPECT_NE(ConvSelector(timed()).methods(other).forward, ConvMethod::rule) << "the next start times it";
}

TEST_F(ConvSelectorFile, AFileOfAnotherProgramIsNotOverwritten) {
  ConvSelector(timed()).methods(conv());
  const std::string good = read_file(file());
  for (const std::string& foreign : {std::string("my notes\n"), std::string("[1, 2]"), std::string("{\"a\": 1}")}) {
    write_file_atomically(file(), foreign);
    EXPECT_NE(ConvSelector(timed()).methods(conv()).forward, ConvMethod::rule);
    EXPECT_EQ(read_file(file()), foreign);
  }
  for (const std::string& ours :
       {good.substr(0, good.size() / 2), good.substr(0, 12), std::string("{\"fo"), std::string("{"), std::string()}) {
    write_file_atomically(file(), ours);
    EXPECT_NE(ConvSelector(timed()).methods(conv()).forward, ConvMethod::rule);
    EXPECT_NE(read_file(file()), ours) << "a truncated file is replaced";
  }
}

// The program that began later saves first.
TEST_F(ConvSelectorFile, AChoiceThatWasSavedMeanwhileIsNotReplacedByADisturbedOne) {
  PlanSelectorOptions options;
  const fs::path path = own_.path / "plans.json";
  PlanSelector early("this", path, options), late("this", path, options);
  late.get("a", [] { return PlanEntry{"good", 1}; });
  late.get("b", [] { return PlanEntry{"of the other", 1}; });
  PlanEntry bad{"bad", 1};
  bad.other_work = 0.5;
  EXPECT_EQ(early.get("a", [&] { return bad; }).plan, "bad");
  EXPECT_EQ(early.cache().find("b"), nullptr) << "other ranks do not know it";
  PlanSelector next("this", path, options);
  ASSERT_NE(next.cache().find("a"), nullptr);
  EXPECT_EQ(next.cache().find("a")->plan, "good");
  EXPECT_NE(next.cache().find("b"), nullptr);
}

TEST_F(ConvSelectorFile, IsNotAskedWhileTimingIsOff) {
  ConvSelector selector(timed());
  selector.set_timing(false);
  EXPECT_EQ(selector.methods(conv()).forward, ConvMethod::rule);
  EXPECT_FALSE(has_file());
}

TEST_F(ConvSelectorFile, WinogradIsNoCandidateIfItIsOff) {
  ConvSelectorOptions options = timed();
  options.winograd = false;
  const ConvMethods m = ConvSelector(options).methods(conv());
  EXPECT_EQ(read_file(file()).find("F("), std::string::npos);
  EXPECT_NE(m.forward, ConvMethod::rule);
  EXPECT_FALSE(m.winograd);
}

TEST_F(ConvSelectorFile, TheThreadsThatComputeAreThoseOfTheTeam) {
  cpu::set_thread_count(3);
  std::vector<int> threads = cpu::team_threads();
  ASSERT_EQ(threads.size(), 3u);
  EXPECT_EQ(threads[0], ::gettid());
  EXPECT_EQ(cpu::team_threads(), threads) << "the team stays";
  std::atomic<int> strangers{0};
  const auto part = [&](int) { strangers += std::find(threads.begin(), threads.end(), ::gettid()) == threads.end(); };
  cpu::run_parts(
      64, 3, [](const void* body, int i) { (*static_cast<const decltype(part)*>(body))(i); }, &part);
  EXPECT_EQ(strangers, 0);
  cpu::set_thread_count(2);
  EXPECT_EQ(cpu::team_threads(), std::vector<int>(threads.begin(), threads.begin() + 2));
  std::sort(threads.begin(), threads.end());
  EXPECT_EQ(std::adjacent_find(threads.begin(), threads.end()), threads.end());
}

// A convolution for which the candidates depend on the number of threads.
std::string method_of_pointwise(World& world, int threads) {
  ExecutionOptions options;
  options.placement.compute_threads = threads;
  options.cpu.autotune = true;
  const ExecutionContext compute = make_cpu_context(world, options);
  ConvSpec s = conv();
  s.window = {.kernel = {1, 1, 1}};
  return compute.backend->make(s)->implementation();
}

TEST_F(ConvSelectorFile, RanksWithDifferentNumbersOfThreadsUseTheRules) {
  std::string first[2], second[2], alike[2];
  const auto unequal = [](std::string* out) {
    run_thread_world(2, [&](World& world) { out[world.rank()] = method_of_pointwise(world, world.rank() + 1); });
  };
  ::testing::internal::CaptureStderr();
  unequal(first);
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("different numbers of threads: cpu.autotune is off"), std::string::npos) << warning;
  EXPECT_FALSE(has_file());
  for (const int threads : {1, 2}) {  // fills the caches of both numbers
    run_thread_world(2, [&](World& world) { alike[world.rank()] = method_of_pointwise(world, threads); });
    EXPECT_NE(alike[0].find("timed: forward"), std::string::npos) << alike[0];
    EXPECT_EQ(alike[0], alike[1]);
  }
  unequal(second);
  for (const std::string& text : {first[0], first[1], second[0], second[1]})
    EXPECT_EQ(text.find("timed"), std::string::npos) << text;
}

}  // namespace conv_selector_test
}  // namespace millrace
