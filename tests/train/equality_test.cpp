#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace equality_test {

using test::fused_run;
using test::run;
using test::small_run;

// Compares the losses of the first steps only. Later ones differ by rounding, because the order of summation differs.
void expect_same_start(const std::vector<nlohmann::json>& a, const std::vector<nlohmann::json>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i]["samples"], b[i]["samples"]) << what;
  const double first = a[0]["grad_norm"];
  EXPECT_NEAR(double(b[0]["grad_norm"]), first, 2e-5 * first) << what;
  for (std::size_t i = 0; i < std::min<std::size_t>(4, a.size()); ++i)
    EXPECT_NEAR(double(b[i]["loss"]), double(a[i]["loss"]), 1e-4 * double(a[i]["loss"])) << what << ", step " << i;
}

TEST(Equality, RanksAndAccumulationAreInterchangeableAtAFixedMicroBatch) {
  const auto reference = run(small_run(true), 1, 8);  // 1 rank x 4 accumulated
  expect_same_start(reference, run(small_run(true), 2, 8), "2 ranks x 2");
  expect_same_start(reference, run(small_run(true), 4, 8), "4 ranks x 1");
  expect_same_start(reference, run(small_run(true), 3, 8), "3 ranks, uneven shares");
}

TEST(Equality, RanksAndAccumulationAreInterchangeableAtFusionLevelsTwoAndThree) {
  const auto plain = run(fused_run(0), 1, 8);
  for (const int level : {2, 3}) {
    const auto reference = run(fused_run(level), 1, 8);
    expect_same_start(reference, plain, "level 0");
    expect_same_start(reference, run(fused_run(level), 2, 8), "2 ranks x 2");
    expect_same_start(reference, run(fused_run(level), 4, 8), "4 ranks x 1");
    expect_same_start(reference, run(fused_run(level), 3, 8), "3 ranks, uneven shares");
  }
}

TEST(Equality, MicroBatchesDoNotMatterWithoutBatchStatistics) {
  const auto whole = run(small_run(false), 1, 32);
  expect_same_start(whole, run(small_run(false), 1, 5), "micro-batches of 5");
  expect_same_start(whole, run(small_run(false), 4, 8), "4 ranks");
}

TEST(Equality, ShortStepsWorkOnRanksWithoutRows) {
  RunConfig c = small_run(true, "65");  // steps of 32, 32 and 1 row
  const auto lines = run(c, 3, 8);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[2]["samples"], 65);
  EXPECT_EQ(lines[5]["samples"], 130);
  expect_same_start(run(c, 1, 8), lines, "1 rank");
}

TEST(Equality, OverlapProgressAndBucketSizeChangeNoBit) {
  RunConfig a = small_run(true), b = a;
  a.comm.overlap = false;
  a.comm.progress = CollectiveOptions::Progress::inline_;
  b.comm.overlap = true;
  b.comm.progress = CollectiveOptions::Progress::thread;
  b.comm.bucket_size = 256;
  const auto one = run(a, 2, 8), two = run(b, 2, 8);
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i]["loss"], two[i]["loss"]);
    EXPECT_EQ(one[i]["grad_norm"], two[i]["grad_norm"]);
  }
}

TEST(Equality, SixteenBitGradientsStayWithinRounding) {
  RunConfig c = small_run(true);
  const auto exact = run(c, 2, 8);
  c.comm.grad_dtype = DType::bf16;
  const auto rounded = run(c, 2, 8);
  const double norm = exact[0]["grad_norm"];
  EXPECT_NEAR(double(rounded[0]["grad_norm"]), norm, norm / 128);  // bf16 keeps 8 bits
  EXPECT_NE(double(rounded[0]["grad_norm"]), norm);
}

TEST(Equality, AForcedOverflowHalvesTheScaleAndSkips) {
  RunConfig c = small_run(true);
  c.run.precision = Precision::fp16;
  c.optim.loss_scale = 1024;
  c.optim.scale_interval = 4;
  c.test.force_overflow_at = 3;
  const auto lines = run(c, 2, 8);
  EXPECT_EQ(lines[1]["loss_scale"], 1024);
  EXPECT_EQ(lines[2]["skipped"], true);
  EXPECT_EQ(lines[2]["loss_scale"], 512);
  EXPECT_EQ(lines[5]["loss_scale"], 512);
  EXPECT_EQ(lines[6]["loss_scale"], 1024);  // after four clean steps
}

TEST(Equality, ALossThatIsNotFiniteEndsTheRunWithAdvice) {
  RunConfig c = small_run(false);
  c.optim.lr = 1e30;
  test::expect_error(Exit::diverged, "lower optim.lr", [&] { run(c, 1, 32); });
}

}  // namespace equality_test
}  // namespace millrace
