// Too little memory is said before the first step, with what would fit; and that does fit.
#include "../../src/train/fit.hpp"

#include <gtest/gtest.h>

#include <regex>

#include "train/runs.hpp"

namespace millrace {
namespace {

TEST(Fit, FindsTheMostRowsInFewPlans) {
  for (const std::size_t base : {0, 10, 5000})
    for (const std::size_t per_row : {1, 7, 100})
      for (const std::int64_t too_many : {2, 3, 50, 4096}) {
        const auto bytes = [&](std::int64_t rows) {  // not quite a line: memory comes in pieces
          return base + per_row * std::size_t(rows) + std::size_t(rows) / 16 * 3;
        };
        for (std::int64_t most : {std::int64_t(0), std::int64_t(1), too_many / 3, too_many - 1}) {
          most = std::min(most, too_many - 1);
          const std::size_t limit = most == 0 ? bytes(1) - 1 : bytes(most + 1) - 1;
          int asked = 0;
          EXPECT_EQ(most_rows(too_many, limit, [&](std::int64_t rows) { return ++asked, bytes(rows); }), most)
              << base << " + " << per_row << " a row, below " << too_many;
          EXPECT_LE(asked, 8) << base << " + " << per_row << " a row, below " << too_many << ": " << most;
        }
      }
}

std::string refusal(const RunConfig& c, int ranks) {
  std::string text;
  try {
    run_thread_world(ranks, [&](World& world) { train(world, c); });
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::config);
    text = e.what();
  }
  return text;
}

TEST(Fit, WhatIsNamedAsTheMostThatFitsDoesFitAndOneMoreDoesNot) {
  for (const int ranks : {1, 2}) {
    const test::Folder folder;
    RunConfig c = test::small_run(true, "2000");
    c.run.dir = (folder.path / "run").string();
    c.data.valid = {"synthetic:images:rows=300,shape=9x8x3,classes=4"};
    c.train.global_batch = 1024, c.train.steps = 1;
    c.run.memory = 3 << 20;
    const std::string text = refusal(c, ranks);
    std::smatch match;
    ASSERT_TRUE(
        std::regex_search(text, match,
                          std::regex("^train.micro_batch: (\\d+) samples at once need .* of them for "
                                     "activations\\), cpu has 3.00 MiB for a rank. set it to (\\d+), the most")))
        << text;
    EXPECT_EQ(std::stoi(match[1]), 1024 / ranks);
    EXPECT_FALSE(std::filesystem::exists(folder.path / "run" / "metrics.jsonl")) << "before step 1";
    c.train.micro_batch = std::stoi(match[2]);
    EXPECT_EQ(refusal(c, ranks), "");
    c.train.micro_batch += 1;
    EXPECT_NE(refusal(c, ranks), "");
  }
}

TEST(Fit, ANetworkTooLargeForASingleSampleIsSaidToBe) {
  const test::Folder folder;
  RunConfig c = test::small_run(false);
  c.run.dir = (folder.path / "run").string();
  c.model.name = "mlp", c.model.hidden = {4000, 4000};
  c.run.memory = 1 << 20;
  EXPECT_NE(refusal(c, 1).find("a single sample is too much"), std::string::npos);
}

TEST(Fit, ThePlanSaysWhetherItFits) {
  RunConfig c = test::small_run(false, "5000");
  c.train.global_batch = 4096;
  const auto world = solo_world();
  EXPECT_EQ(describe_plan(*world, c).find("does not fit"), std::string::npos);
  c.run.memory = 3 << 20;
  EXPECT_NE(describe_plan(*world, c).find("does not fit: train.micro_batch: 4096 samples"), std::string::npos);
}

}  // namespace
}  // namespace millrace
