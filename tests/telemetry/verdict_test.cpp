#include "millrace/telemetry/verdict.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

// Half of the step waits for samples, a tenth for sums.
Evidence starved() {
  Evidence e;
  e.step = 0.020, e.without_input = 0.010, e.without_sums = 0.008;
  e.batch = 128, e.loader_rate = 6400, e.ranks = 2, e.workers = 1, e.cores = 4;
  e.precision = "fp32", e.compress = "none", e.reader = "direct", e.bucket = 4 << 20, e.prefetch = 4;
  e.chunk_cache = 256 << 20;
  return e;
}

bool tries(const std::vector<Change>& changes, const std::string& key, const std::string& to) {
  return std::any_of(changes.begin(), changes.end(), [&](const Change& c) { return c.key == key && c.to == to; });
}

TEST(Verdict, SharesSumToOneWhateverTheNoise) {
  Evidence e = starved();
  EXPECT_NEAR(e.share(Bound::input), 0.5, 1e-12);
  EXPECT_NEAR(e.share(Bound::sums), 0.1, 1e-12);
  for (const double without_input : {0.001, 0.015, 0.03})
    for (const double without_sums : {0.0005, 0.015, 0.04}) {
      e.without_input = without_input, e.without_sums = without_sums;
      EXPECT_NEAR(e.share(Bound::input) + e.share(Bound::sums) + e.share(Bound::compute), 1, 1e-12);
      for (const Bound b : {Bound::input, Bound::sums, Bound::compute}) EXPECT_GE(e.share(b), 0);
    }
}

TEST(Verdict, OnlyWhatTakesAShareIsTriedAndOnlyWhereItApplies) {
  Evidence e = starved();
  auto changes = changes_to_try(e);
  EXPECT_TRUE(tries(changes, "data.workers", "2") && tries(changes, "data.workers", "4"));
  EXPECT_TRUE(tries(changes, "data.reader", "mmap"));
  EXPECT_FALSE(tries(changes, "data.reader", "direct")) << "it is so already";
  EXPECT_FALSE(tries(changes, "data.shuffle", "block")) << "the data is not chunked";
  EXPECT_TRUE(tries(changes, "comm.compress", "bf16"));
  e.chunked = true;
  changes = changes_to_try(e);
  EXPECT_FALSE(tries(changes, "data.reader", "mmap"));
  EXPECT_TRUE(tries(changes, "data.shuffle", "block") && tries(changes, "data.chunk_cache", "1024MiB"));
  e.without_input = e.step, e.without_sums = e.step;
  for (const Change& c : changes_to_try(e)) EXPECT_EQ(int(c.bound), int(Bound::compute)) << c.key;
  e.ranks = 1, e.without_sums = 0.001;
  EXPECT_FALSE(tries(changes_to_try(e), "comm.compress", "bf16")) << "one rank sums with nobody";
}

TEST(Verdict, TheLargestMeasuredGainComesFirstWithItsEvidence) {
  const Evidence e = starved();
  const Change two{Bound::input, "data.workers", "1", "2", ""}, four{Bound::input, "data.workers", "1", "4", ""},
      compress{Bound::sums, "comm.compress", "none", "bf16", "coarser"};
  const std::vector<Trial> trials{{compress, 0.019, 0.020, ""}, {two, 0.0125, 0.020, ""}, {four, 0.0123, 0.020, ""}};
  const auto found = findings(e, trials);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].advice, "data.workers 1 -> 2") << "four workers give hardly more";
  EXPECT_NEAR(found[0].gain, 1.6, 1e-12);
  EXPECT_EQ(found[1].caution, "coarser");
  for (const Finding& f : found) EXPECT_FALSE(f.evidence.empty());
  const std::string text = verdict(e, trials);
  EXPECT_EQ(text.find("input-bound: 50 % of the step waits for samples; the loader alone delivers 6.4 k samples/s, the "
                      "step could take 12.8 k. data.workers 1 -> 2 gives 1.60x\n"),
            0u)
      << text;
}

TEST(Verdict, NoiseAndFailuresAreNoFindings) {
  const Evidence e = starved();
  const Change two{Bound::input, "data.workers", "1", "2", ""}, mmap{Bound::input, "data.reader", "direct", "mmap", ""};
  const std::vector<Trial> trials{{two, 0.0195, 0.020, ""}, {mmap, 0, 0, "not contiguous"}};
  EXPECT_TRUE(findings(e, trials).empty());
  const std::string text = verdict(e, trials);
  EXPECT_EQ(text.find("input-bound: "), 0u) << text;
  EXPECT_NE(text.find("no change that was tried helps"), text.npos) << text;
  EXPECT_NE(text.find("data.reader -> mmap: not tried, not contiguous"), text.npos) << text;
}

TEST(Verdict, AHealthyRunHasNothingWorthChanging) {
  Evidence e = starved();
  e.without_input = 0.0199, e.without_sums = 0.0198;
  EXPECT_EQ(verdict(e, {}).find("nothing worth changing: 99 % of the step computes"), 0u) << verdict(e, {});
}

}  // namespace
}  // namespace millrace
