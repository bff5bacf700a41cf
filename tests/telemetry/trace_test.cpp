#include "millrace/telemetry/trace.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace trace_test {

TEST(Trace, SpansOfALaneNestOrFollowEachOther) {
  const std::vector<Span> spans{{"t", "outer", 0, 10},  {"t", "inner", 0, 4},   {"t", "next", 4, 10},
                                {"t", "across", 9, 12}, {"t", "after", 10, 11}, {"t", "later", 12, 13}};
  EXPECT_EQ(lanes_of(spans), (std::vector<int>{0, 0, 0, 1, 0, 0}));
}

TEST(Trace, AllRanksShareOneClock) {
  RankTrace first{"a", 0, 0, {{"step", "step 1", 100.0, 100.5, {{"step", 1}}}}, 0};
  RankTrace second{"b", 7.25, 2e-6, {{"step", "step 1", 107.35, 107.6}, {"loader 1", "batch 3", 107.25, 107.3}}, 2};
  second = RankTrace::from_json(second.json());
  const std::string text = trace_json({first, second});
  const auto j = nlohmann::json::parse(text);
  EXPECT_EQ(j.at("otherData").at("spans_left_out"), 2);
  EXPECT_NEAR(j.at("otherData").at("largest_clock_error_us").get<double>(), 2, 1e-9);
  const auto ranks = trace_from_json(text);
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1].host, "b");
  ASSERT_EQ(ranks[1].spans.size(), 2u);
  EXPECT_EQ(ranks[0].spans[0].stats, first.spans[0].stats);
  EXPECT_NEAR(ranks[0].spans[0].began, 0, 1e-9);
  EXPECT_NEAR(ranks[1].spans[0].began, 0.1, 1e-9);
  EXPECT_NEAR(ranks[1].spans[0].ended, 0.35, 1e-9);
  EXPECT_NEAR(ranks[1].spans[1].began, 0, 1e-9);
}

TEST(Trace, SpansBeyondTheLimitAreCounted) {
  RankTrace rank{"a", 0, 0, std::vector<Span>(10, Span{"t", "n", 0, 1}), 0};
  limit(rank, 4);
  EXPECT_EQ(rank.spans.size(), 4u);
  EXPECT_EQ(rank.left_out, 6u);
}

}  // namespace trace_test
}  // namespace millrace
