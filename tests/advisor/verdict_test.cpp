#include <gtest/gtest.h>

#include "advisor/metrics_samples.hpp"

namespace millrace {
namespace verdict_test {

TEST(Verdict, SharesSumToOneDespiteNoise) {
  BottleneckMetrics e = starved();
  EXPECT_NEAR(e.share(Bound::input), 0.5, 1e-12);
  EXPECT_NEAR(e.share(Bound::communication), 0.1, 1e-12);
  for (const double without_input : {0.001, 0.015, 0.03})
    for (const double without_communication : {0.0005, 0.015, 0.04}) {
      e.without.input = without_input;
      e.without.communication = without_communication;
      EXPECT_NEAR(e.share(Bound::input) + e.share(Bound::communication) + e.share(Bound::compute), 1, 1e-12);
      for (const Bound b : {Bound::input, Bound::communication, Bound::compute}) EXPECT_GE(e.share(b), 0);
    }
}

TEST(Verdict, SharesOfAllBoundsSumToOneAndStartupIsAShareOfTheRun) {
  for (const BottleneckMetrics& e : all_kinds()) {
    double sum = 0;
    for (int b = 0; b < bound_count; ++b)
      if (Bound(b) != Bound::startup) sum += e.share(Bound(b));
    EXPECT_NEAR(sum, 1, 1e-12);
    EXPECT_NEAR(e.share(Bound::startup), 0.5, 1e-12);
    EXPECT_NEAR(e.share(Bound::checkpoint), 0.0005 / 0.0019, 1e-12);
  }
}

TEST(Verdict, TriesOnlyApplicableChangesAgainstBoundsThatTakeTime) {
  BottleneckMetrics e = starved();
  auto changes = changes_to_try(e);
  EXPECT_TRUE(tries(changes, "data.workers", "2") && tries(changes, "data.workers", "4"));
  EXPECT_TRUE(tries(changes, "data.reader", "mmap"));
  EXPECT_FALSE(tries(changes, "data.reader", "direct")) << "the present value";
  EXPECT_FALSE(tries(changes, "data.shuffle", "block")) << "the data is not chunked";
  EXPECT_TRUE(tries(changes, "comm.grad_dtype", "bf16"));
  e.config.input.chunked = true;
  changes = changes_to_try(e);
  EXPECT_FALSE(tries(changes, "data.reader", "mmap"));
  EXPECT_TRUE(tries(changes, "data.shuffle", "block") && tries(changes, "data.chunk_cache", "1024MiB"));
  e.without.input = e.times.step;
  e.without.communication = e.times.step;
  for (const Change& c : changes_to_try(e)) EXPECT_EQ(int(c.bound), int(Bound::compute)) << c.key;
  e.config.machine.ranks = 1;
  e.without.communication = 0.001;
  EXPECT_FALSE(tries(changes_to_try(e), "comm.grad_dtype", "bf16")) << "a single rank does not communicate";
}

TEST(Verdict, LargestMeasuredGainComesFirstWithItsEvidence) {
  const BottleneckMetrics e = starved();
  const Change two{Bound::input, "data.workers", "1", "2", ""}, four{Bound::input, "data.workers", "1", "4", ""},
      grad_dtype{Bound::communication, "comm.grad_dtype", "none", "bf16", "coarser"};
  const std::vector<Trial> trials{{grad_dtype, 0.019, 0.020, ""}, {two, 0.0125, 0.020, ""}, {four, 0.0123, 0.020, ""}};
  const auto found = findings(e, trials);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].advice, "data.workers 1 -> 2") << "four workers gain hardly more";
  EXPECT_NEAR(found[0].gain, 1.6, 1e-12);
  EXPECT_EQ(found[1].caution, "coarser");
  for (const Finding& f : found) EXPECT_FALSE(f.evidence.empty());
  const std::string text = verdict(e, trials);
  EXPECT_EQ(
      text.find("input-bound: 50 % of the step is spent waiting for samples; the loader can deliver 6.4 k samples/s, "
                "the step can consume 12.8 k. data.workers 1 -> 2 gives 1.60x\n"),
      0u)
      << text;
}

TEST(Verdict, NoiseAndFailuresAreNoFindings) {
  const BottleneckMetrics e = starved();
  const Change two{Bound::input, "data.workers", "1", "2", ""}, mmap{Bound::input, "data.reader", "direct", "mmap", ""};
  const std::vector<Trial> trials{{two, 0.0195, 0.020, ""}, {mmap, 0, 0, "not contiguous"}};
  EXPECT_TRUE(findings(e, trials).empty());
  const std::string text = verdict(e, trials);
  EXPECT_EQ(text.find("input-bound: "), 0u) << text;
  EXPECT_NE(text.find("none of the tried changes helps"), text.npos) << text;
  EXPECT_NE(text.find("data.reader -> mmap: not tried, not contiguous"), text.npos) << text;
  for (const int faster : {3, 4}) {  // faster in 3 or 4 of five rounds
    const std::vector<Trial> again{{two, 0.015, 0.020, "", 5, faster}};
    EXPECT_EQ(findings(e, again).size(), faster > 3 ? 1u : 0u);
    EXPECT_EQ(verdict(e, again).find("1.33x; noise: faster in only 3 of 5 rounds\n") != text.npos, faster == 3);
  }
}

TEST(Verdict, HealthyProbeHasNothingWorthChanging) {
  BottleneckMetrics e = starved();
  e.without.input = 0.0199;
  e.without.communication = 0.0198;
  EXPECT_EQ(verdict(e).find("nothing worth changing: 99 % of the step is spent computing"), 0u) << verdict(e);
}

TEST(Verdict, HealthyRunHasNothingWorthChanging) {
  EXPECT_EQ(verdict(bottleneck_metrics_of(healthy(), plain())).find("nothing worth changing: "), 0u)
      << verdict(bottleneck_metrics_of(healthy(), plain()));
  EXPECT_EQ(verdict(bottleneck_metrics_of({}, plain())), "") << "no step, no verdict";
}

TEST(Verdict, WithoutTrialsGainsAreUpperBoundsFromMeasuredTime) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = r.loader.wait_seconds = 1;
    r.step_times.mean = 0.020;
    r.loader.read_seconds = 4;  // two workers of four seconds each for 3200 samples: 1600 a second
  }
  const auto found = findings(bottleneck_metrics_of(a, plain()));
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(found[0].at_most);
  EXPECT_NEAR(found[0].gain, 2, 1e-9);
  EXPECT_NE(found[0].evidence.find("50 % of the time is spent waiting for samples; the loader can deliver 3.2 k "
                                   "samples/s, the step can consume 6.4 k"),
            std::string::npos)
      << found[0].evidence;
  EXPECT_EQ(found[0].advice.find("data.workers 2 -> 5, or data.reader direct -> mmap"), 0u) << found[0].advice;
}

TEST(Verdict, FindingsOfTrialsCarryTheEvidenceOfTheirRule) {
  BottleneckMetrics e = all_kinds()[0];
  e.probed = true;
  e.run.startup_seconds = 0;
  e.without.input = e.without.communication = e.times.step;
  const auto changes = changes_to_try(e);
  const auto threads =
      std::find_if(changes.begin(), changes.end(), [](const Change& c) { return c.key == "run.threads"; });
  ASSERT_NE(threads, changes.end());
  const auto found = findings(e, {{*threads, 0.0001, 0.002, ""}});
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found[0].evidence.find("; 8 compute threads on the 2 cores of a rank"), std::string::npos)
      << found[0].evidence;
}

TEST(Verdict, InputBoundIsStatedEvenWithoutARemedy) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = r.loader.wait_seconds = 1;
    r.step_times.mean = 0.020;
  }
  ResolvedConfig s = plain();
  s.input.reader = "synthetic";
  s.input.workers = 2 * s.machine.cores;
  s.input.prefetch = 0;
  const std::string said = verdict(bottleneck_metrics_of(a, s));
  EXPECT_EQ(said.find("input-bound: 50 % of the time is spent waiting for samples"), 0u) << said;
  EXPECT_NE(said.find(". no configuration key is known to help\n"), said.npos) << said;
  BottleneckMetrics e = bottleneck_metrics_of(a, s);
  e.probed = true;
  EXPECT_NE(verdict(e).find(". none of the tried changes helps\n"), said.npos) << verdict(e);
}

TEST(Verdict, SynchronisationAfterAStepIsNotHostTime) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::other) = 0.6;
    r.step_times.mean = 0.016;
    r.pace.steps = 90;
    r.pace.meets = true;
    r.pace.meeting = 0.0055;
  }
  const BottleneckMetrics e = bottleneck_metrics_of(a, plain());
  EXPECT_NEAR(e.times.host, 0.0005, 1e-9);
  EXPECT_GE(e.times.late_rank_wait, 0.0055 - 1e-9);
  EXPECT_EQ(verdict(e).find("host-bound"), std::string::npos) << verdict(e);
  Account paused = a;  // only the steps with a known synchronisation time were paused
  for (RankAccount& r : paused.ranks) {
    r.pace.meeting = 1;
    of(r, Phase::other) = 100;
  }
  EXPECT_GE(bottleneck_metrics_of(paused, plain()).without.communication, 0);
  EXPECT_LE(bottleneck_metrics_of(paused, plain()).times.late_rank_wait, 0.016 + 1e-9);
  for (RankAccount& r : a.ranks) r.pace.meeting = 0;
  EXPECT_NE(verdict(bottleneck_metrics_of(a, plain())).find("host-bound"), std::string::npos);
}

TEST(Verdict, TimeAtAReadyBatchIsNotInputTime) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = 1;
    r.step_times.mean = 0.020;
  }
  const BottleneckMetrics e = bottleneck_metrics_of(a, plain());
  EXPECT_NEAR(e.share(Bound::input), 0, 1e-12);
  EXPECT_NEAR(e.share(Bound::host), 0.01, 1e-12);
}

TEST(Verdict, TheFirstBatchCountsAsStartup) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::data_wait) = r.loader.wait_seconds = 0.5;
    r.step_times.mean = 0.015;
    r.loader.first_batch_seconds = 0.4;
  }
  BottleneckMetrics e = bottleneck_metrics_of(a, plain());
  EXPECT_NEAR(e.times.step, 0.011, 1e-12);
  EXPECT_NEAR(e.times.step - e.without.input, 0.001, 1e-12);
  EXPECT_NEAR(e.run.startup_seconds, 0.5, 1e-12);
  for (RankAccount& r : a.ranks) r.loader.first_batch_seconds = 2;  // the step began to wait later
  e = bottleneck_metrics_of(a, plain());
  EXPECT_NEAR(e.times.step, 0.010, 1e-12);
  EXPECT_EQ(verdict(e).find("nothing worth changing"), 0u) << verdict(e);
}

TEST(Verdict, AShortRunIsNotJudged) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) of(r, Phase::data_wait) = r.loader.wait_seconds = 1;
  const auto said = [&](std::uint64_t steps, double seconds) {
    for (RankAccount& r : a.ranks) {
      r.steps = steps;
      r.step_times.mean = seconds;
    }
    return verdict(bottleneck_metrics_of(a, plain()));
  };
  EXPECT_EQ(said(1, 0.4), "too short to judge: 1 step, 0.4 s of training\n");
  EXPECT_EQ(said(4, 10), "too short to judge: 4 steps, 40 s of training\n");
  EXPECT_EQ(said(100, 0.002), "too short to judge: 100 steps, 0.2 s of training\n");
  EXPECT_EQ(said(100, 0.02).find("input-bound: "), 0u) << said(100, 0.02);
  BottleneckMetrics e = starved();
  e.run.steps = 3;
  EXPECT_EQ(verdict(e).find("too short"), std::string::npos) << "a probe measures enough steps";
}

TEST(Verdict, ARunThatMostlyEvaluatesIsNotComputeBound) {
  Account a = healthy();
  for (RankAccount& r : a.ranks) {
    of(r, Phase::evaluation) = 4;
    r.evaluations = 1;
  }
  const std::string said = verdict(bottleneck_metrics_of(a, plain()));
  EXPECT_EQ(said.find("evaluation-bound: 80 % of the time is spent in evaluation; 19 % of the time is spent computing"),
            0u)
      << said;
}

TEST(Verdict, EvaluationsThatTakeLittleAreNotToBeLeftOut) {
  Account a = healthy();
  const auto off = [&](double seconds) {
    for (RankAccount& r : a.ranks) {
      of(r, Phase::evaluation) = seconds;
      r.evaluations = 5;
    }
    return verdict(bottleneck_metrics_of(a, plain())).find("train.evaluate on -> off") != std::string::npos;
  };
  EXPECT_FALSE(off(0.15));
  EXPECT_TRUE(off(1));
}

}  // namespace verdict_test
}  // namespace millrace
