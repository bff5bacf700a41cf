#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>

#include "cuda/dnn/conv.hpp"
#include "cuda/dnn/conv_graph.hpp"
#include "cuda/dnn/cudnn.hpp"
#include "cuda/plans/plan_identity.hpp"
#include "millrace/base/files.hpp"
#include "millrace/comm/world.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace plan_cache_test {

using namespace cuda;
namespace fs = std::filesystem;

std::string h200() { return read_file(MILLRACE_SOURCE_DIR "/tests/cuda/h200.json"); }

ConvSpec conv() {
  ConvSpec s;
  s.src = {4, 14, 14, 32};
  s.out_channels = 64;
  s.dtype = DType::f16;
  s.window = {.kernel = {3, 3, 1}, .pad = {1, 1, 0}};
  return s;
}

class PlanCacheFile : public ::testing::Test {
 protected:
  // The number of entries after loading a file with this content.
  std::size_t entries(const std::string& content) {
    write_file_atomically(folder_ / "plans.json", content);
    PlanCache cache("this device");
    cache.load(folder_ / "plans.json");
    return cache.entries().size();
  }
  const test::TemporaryFolder own_;
  const fs::path& folder_ = own_.path;
};

TEST_F(PlanCacheFile, KeepsTheChoices) {
  PlanCache cache("this device");
  cache.insert("a graph", {"{\"plan\": \"text\"}", 1.5e-4});
  cache.insert("one without engines", {});
  cache.save(folder_ / "new" / "plans.json");
  PlanCache again("this device");
  again.load(folder_ / "new" / "plans.json");
  ASSERT_EQ(again.entries().size(), 2u);
  EXPECT_EQ(again.find("a graph")->plan, "{\"plan\": \"text\"}");
  EXPECT_EQ(again.find("a graph")->seconds, 1.5e-4);
  EXPECT_EQ(again.find("another"), nullptr);
}

TEST_F(PlanCacheFile, DamagedOrOutdatedTextIsIgnored) {
  PlanCache cache("this device"), other("another device");
  for (auto* c : {&cache, &other}) c->insert("a graph", {"text", 1});
  const std::string good = cache.serialize();
  EXPECT_EQ(entries(good), 1u);
  EXPECT_EQ(entries(other.serialize()), 0u);
  EXPECT_EQ(entries(""), 0u);
  EXPECT_EQ(entries("[]"), 0u);
  EXPECT_EQ(entries(good.substr(0, good.size() / 2)), 0u);
  EXPECT_EQ(entries(R"({"format":2,"identity":"this device","plans":{"a":{"plan":"3","seconds":1}}})"), 1u);
  EXPECT_EQ(entries(R"({"format":2,"identity":"this device","plans":{"a":{"plan":3,"seconds":1}}})"), 0u);
  EXPECT_EQ(PlanCache("this device").replace_with(other.serialize()), "");
  EXPECT_NE(PlanCache("this device").replace_with("{}"), "");
  // Times in files of format 1 were measured otherwise.
  EXPECT_EQ(entries(R"({"format":1,"identity":"this device","plans":{"a":{"plan":"3","seconds":1}}})"), 0u);
  EXPECT_EQ(entries(R"({"format":3,"identity":"this device","plans":{"a":{"plan":"3","seconds":1}}})"), 0u);
}

TEST_F(PlanCacheFile, AFolderThatCannotBeCreatedIsNotAnError) {
  PlanCache cache("this device");
  cache.insert("a graph", {"text", 1});
  write_file_atomically(folder_ / "file", "");
  EXPECT_NO_THROW(cache.save(folder_ / "file" / "plans.json"));
}

PlanIdentity h200_identity() {
  return {.library = "cudnn",
          .version = 91900,
          .candidates = 8,
          .device = "NVIDIA H200/x",
          .multiprocessors = 132,
          .driver = 13000,
          .runtime = 13000,
          .driver_build = "580.65.06"};
}

// A file stays where it is when one of them changes, and its plans are not used.
TEST_F(PlanCacheFile, BelongsToTheDeviceTheDriverTheLibraryAndTheNumberOfCandidates) {
  const fs::path file = folder_ / "plans.json";
  const auto known = [&](const PlanIdentity& identity) {
    PlanCache cache(identity.text());
    cache.load(file);
    return cache.find("a graph") != nullptr;
  };
  const PlanIdentity own = h200_identity();
  PlanCache cache(own.text());
  cache.insert("a graph", {"text", 1e-5});
  cache.save(file);
  EXPECT_TRUE(known(own));
  for (const auto change :
       {+[](PlanIdentity& i) { i.library = "cublaslt"; }, +[](PlanIdentity& i) { i.version = 91901; },
        +[](PlanIdentity& i) { i.candidates = 16; }, +[](PlanIdentity& i) { i.device = "NVIDIA H100"; },
        +[](PlanIdentity& i) { i.multiprocessors = 114; }, +[](PlanIdentity& i) { i.driver = 13010; },
        +[](PlanIdentity& i) { i.runtime = 12080; }, +[](PlanIdentity& i) { i.driver_build = "580.82.07"; },
        +[](PlanIdentity& i) { i.driver_build = ""; }}) {
    PlanIdentity other = own;
    change(other);
    EXPECT_FALSE(known(other)) << other.text();
  }
  // What earlier versions wrote.
  write_file_atomically(file,
                        R"({"format":1,"identity":"cudnn 91900, NVIDIA H200/x, 132 multiprocessors, driver 13000, )"
                        R"(runtime 13000","plans":{"a graph":{"plan":"text","seconds":1e-5}}})");
  EXPECT_FALSE(known(own));
}

TEST_F(PlanCacheFile, TheBuildOfTheDriverIsThatOfItsModule) {
  write_file_atomically(folder_ / "version", "580.65.06\n");
  EXPECT_EQ(driver_build(folder_ / "version"), "580.65.06");
  EXPECT_EQ(driver_build(folder_ / "nothing"), "");
}

TEST(PlanCache, IsStoredInTheCacheFolderOfTheUser) {
  setenv("XDG_CACHE_HOME", "/some/where", 1);
  EXPECT_EQ(h200_identity().file(), "/some/where/millrace/cudnn-91900-NVIDIA_H200_x-132.json");
  unsetenv("XDG_CACHE_HOME");
}

TEST_F(PlanCacheFile, ContainsMeasuredChoicesAtOnce) {
  const fs::path file = folder_ / "plans.json";
  const auto in_file = [&](const std::string& problem) {
    PlanCache cache("this device");
    cache.load(file);
    return cache.find(problem) != nullptr;
  };
  const PlanSelectorOptions options{};
  PlanSelector choices("this device", file, options);
  choices.get("measured", [] { return PlanEntry{"text", 1e-5}; });
  EXPECT_TRUE(in_file("measured"));
  choices.get("without engines", [] { return PlanEntry{}; });
  EXPECT_TRUE(in_file("without engines"));
  choices.get("not measured", [] { return PlanEntry{"text"}; });
  EXPECT_FALSE(in_file("not measured")) << "a later run may have enough memory to time it";
  choices.get("all failed", [] { return PlanEntry{.plan = "", .persistent = false}; });
  EXPECT_FALSE(in_file("all failed")) << "a later run tries again";
  choices.get("estimated", [] { return PlanEntry{"text", 1e-5, false}; });
  EXPECT_FALSE(in_file("estimated")) << "a later run may measure it";
  choices.set_timing(false);
  choices.get("measured", [] { return PlanEntry{"guess"}; });
  EXPECT_EQ(choices.get("measured", [] { return PlanEntry{}; }).plan, "guess");
  choices.set_timing(true);
  EXPECT_EQ(choices.get("measured", [] { return PlanEntry{}; }).plan, "text");
  PlanSelector later("this device", file, options);
  const auto nothing = [] { return ADD_FAILURE() << "known", PlanEntry{}; };
  EXPECT_EQ(later.get("measured", nothing).plan, "text");
  EXPECT_EQ(choices.get("not measured", nothing).plan, "text");
  PlanSelector other_rank("this device", file, {.rank = 1});
  other_rank.get("another", [] { return PlanEntry{"text", 1e-5}; });
  EXPECT_FALSE(in_file("another"));
}

TEST(PlanChoice, IsThatOfRankZeroOnEveryRank) {
  std::deque<std::string> sent;
  cudnn::Options first, second;
  first.choices.broadcast = [&](const std::string& text) { return sent.push_back(text), text; };
  second.choices.rank = 1;
  second.choices.broadcast = [&](const std::string& mine) {
    EXPECT_TRUE(mine.empty());
    const std::string text = sent.front();
    return sent.pop_front(), text;
  };
  cudnn::Cudnn a(h200(), first), b(h200(), second);
  make_conv(conv(), LaunchContext{}, a);
  make_conv(conv(), LaunchContext{}, b);
  EXPECT_EQ(a.choices().cache().entries().size(), 3u);
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(a.choices().cache().entries(), b.choices().cache().entries());
}

TEST(PlanChoice, AProblemThatDiffersFromThatOfRankZeroIsRejected) {
  run_thread_world(2, [](World& world) {
    PlanSelectorOptions options{.rank = world.rank()};
    options.broadcast = [&](const std::string& text) { return world.broadcast_string(text); };
    PlanSelector choices("equal devices", "", options);
    const auto select = [] { return PlanEntry{"text", 1e-5}; };
    EXPECT_EQ(choices.get("the same", select).plan, "text");
    const std::string other = fmt::format("of rank {}", world.rank());
    if (world.rank() == 0)
      EXPECT_EQ(choices.get(other, select).plan, "text");
    else
      EXPECT_THROW(choices.get(other, select), Error);
  });
}

TEST(PlanChoice, IsMadeOnceForEachGraph) {
  int broadcasts = 0;
  cudnn::Options options;
  options.choices.broadcast = [&](const std::string& text) { return ++broadcasts, text; };
  cudnn::Cudnn library(h200(), options);
  broadcasts = 0;
  for (int i = 0; i < 3; ++i) make_conv(conv(), LaunchContext{}, library);
  EXPECT_EQ(broadcasts, 3);  // forward, backward data, backward weights
}

TEST(PlanChoice, ACachedPlanThatDoesNotLoadIsReplacedByTheFirstPlanOfCudnn) {
  cudnn::Cudnn library(h200(), {});
  const auto op = make_conv(conv(), LaunchContext{}, library);
  cudnn::Cudnn spoilt(h200(), {});
  for (const auto& [key, entry] : library.choices().cache().entries())
    spoilt.choices().cache().insert(key, {"{\"engine\": {}}", 1});
  EXPECT_EQ(make_conv(conv(), LaunchContext{}, spoilt)->implementation(), op->implementation());
}

TEST(PlanRules, AreObeyed) {
  const auto target = cudnn::DeviceTarget::described_by(h200());
  cudnn::ConvProblem p;
  p.direction = cudnn::Direction::backward_weights;
  p.src = p.dst = {64, 56, 56, 64};
  p.weight = {64, 3, 3, 64};
  p.window = {.kernel = {3, 3, 1}, .pad = {1, 1, 0}};
  const auto count = [&](const cudnn::PlanRules& rules) {
    return cudnn::ConvGraph(target, p).plans(rules, 100).size();
  };
  EXPECT_GT(count({}), count({.deterministic = true}));
  EXPECT_GT(count({.tf32 = true}), count({}));
  p.dtype = DType::f16;
  for (const auto& plan : cudnn::ConvGraph(target, p).plans({.workspace_limit = 1 << 18}, 100))
    EXPECT_LE(plan.workspace_bytes(), 1u << 18);
  EXPECT_GT(count({}), count({.workspace_limit = 1 << 18}));
}

TEST(ConvPlans, RefusalNamesTheConvolution) {
  cudnn::Cudnn library(h200(), {}), barren(h200(), {});
  make_conv(conv(), LaunchContext{}, library);
  for (const auto& [key, entry] : library.choices().cache().entries()) barren.choices().cache().insert(key, {});
  try {
    make_conv(conv(), LaunchContext{}, barren);
    FAIL() << "an operation was made without a plan";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::config);
    EXPECT_NE(std::string(e.what()).find("4x14x14x32 -> 4x14x14x64"), std::string::npos) << e.what();
  }
}

}  // namespace plan_cache_test
}  // namespace millrace
