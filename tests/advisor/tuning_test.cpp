#include "millrace/advisor/rules/tuning.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace millrace {
namespace tuning_test {

// Half of the step waits for samples, a tenth for all-reduces.
BottleneckMetrics starved() {
  BottleneckMetrics e;
  e.probed = true;
  e.times.step = 0.020;
  e.without.input = 0.010;
  e.without.communication = 0.008;
  e.config.machine.ranks = 2;
  e.config.input.workers = 1;
  e.config.machine.cores = 2;
  e.config.input.reader = "mmap";
  e.config.communication.bucket_size = 8 << 20;
  e.config.input.prefetch = 0;
  e.config.training.global_batch = 256;
  e.config.training.micro_batch = 32;
  e.config.input.sample_bytes = 1000;
  return e;
}
TuneLimits room() {
  TuneLimits r;
  r.max_rows = 100;
  r.ring_bytes = 1 << 30;
  r.gradient_bytes = 3 << 20;
  r.fusion = 1;
  r.max_fusion = 2;
  return r;
}
const SearchAxis* find(const std::vector<SearchAxis>& axes, const std::string& key) {
  const auto at = std::find_if(axes.begin(), axes.end(), [&](const SearchAxis& a) { return a.key == key; });
  return at == axes.end() ? nullptr : &*at;
}
Values of(const std::vector<SearchAxis>& axes, const std::string& key) {
  const SearchAxis* axis = find(axes, key);
  return axis ? axis->values : Values{};
}

TEST(Tuning, AxesContainThePresentValueAndOnlyValuesThatFit) {
  const BottleneckMetrics e = starved();
  const auto axes = tune_axes(e, room());
  for (const SearchAxis& axis : axes) {
    ASSERT_GE(axis.values.size(), 2u) << axis.key;
    EXPECT_EQ(std::set<std::string>(axis.values.begin(), axis.values.end()).size(), axis.values.size()) << axis.key;
    for (const int f : axis.first) EXPECT_TRUE(f >= 0 && f < int(axis.values.size()) && f != axis.now) << axis.key;
  }
  EXPECT_EQ(of(axes, "data.workers"), (Values{"0", "1", "2", "4"}));
  EXPECT_EQ(of(axes, "data.reader"), (Values{"direct", "mmap", "uring"}));
  EXPECT_EQ(of(axes, "data.prefetch"), (Values{"auto", "2", "4", "16", "64"}));
  EXPECT_EQ(of(axes, "comm.bucket_size"), (Values{"64KiB", "256KiB", "1MiB", "8MiB"})) << "one bucket holds all 3 MiB";
  BottleneckMetrics tiny = e;
  tiny.config.communication.bucket_size = 16000;
  const auto buckets = tune_axes(tiny, room());
  EXPECT_EQ(of(buckets, "comm.bucket_size"), (Values{"16000", "64KiB", "256KiB", "1MiB", "4MiB"}));
  EXPECT_EQ(find(buckets, "comm.bucket_size")->first, std::vector<int>{4}) << "the present size is far from it";
  EXPECT_EQ(find(axes, "cuda.nccl_max_ctas"), nullptr) << "not NCCL";
  BottleneckMetrics gpus = e;
  gpus.config.communication.nccl = true;
  gpus.config.communication.nccl_max_ctas = "6";
  gpus.config.communication.nccl_cta_policy = "default";
  gpus.config.communication.nccl_windows = "on";
  const auto of_nccl = tune_axes(gpus, room());
  EXPECT_EQ(of(of_nccl, "cuda.nccl_max_ctas"), (Values{"auto", "16", "8", "4", "6"}));
  EXPECT_EQ(find(of_nccl, "cuda.nccl_max_ctas")->first, (std::vector<int>{0, 1, 2, 3})) << "all are tried";
  EXPECT_EQ(find(of_nccl, "cuda.nccl_cta_policy")->bound, Bound::communication);
  EXPECT_EQ(of(of_nccl, "cuda.nccl_windows"), (Values{"on", "off"}));
  // A rank has 128 samples, of which at most 100 fit at once. So the values are powers of two up to 64.
  EXPECT_EQ(of(axes, "train.micro_batch"), (Values{"1", "2", "4", "8", "16", "32", "64"}));
  EXPECT_EQ(of(axes, "model.fusion"), (Values{"0", "1", "2"}));
  TuneLimits without_level = room();
  without_level.fusion = -1;
  EXPECT_EQ(of(tune_axes(e, without_level), "model.fusion"), (Values{"0", "1", "2", "auto"}));
  EXPECT_EQ(find(axes, "train.global_batch"), nullptr) << "the global batch stays by default";
  EXPECT_EQ(find(axes, "run.threads"), nullptr) << "one thread only";
  BottleneckMetrics wide = e;
  wide.config.machine.threads = 6;
  EXPECT_EQ(of(tune_axes(wide, room()), "run.threads"), (Values{"1", "2", "4", "6"}));
  wide.config.machine.gpu = true;
  EXPECT_EQ(find(tune_axes(wide, room()), "run.threads"), nullptr) << "CPU threads do not compute on a GPU";
}

TEST(Tuning, InapplicableKeysAreNotSearched) {
  BottleneckMetrics e = starved();
  e.config.machine.ranks = 1;
  e.config.input.chunked = true;
  e.config.input.reader = "direct";
  EXPECT_EQ(find(tune_axes(e, room()), "comm.bucket_size"), nullptr);
  EXPECT_EQ(find(tune_axes(e, room()), "data.reader"), nullptr);
  e.config.input.reader = "mpio";
  EXPECT_EQ(find(tune_axes(e, room()), "data.workers"), nullptr) << "it has one worker";
  TuneLimits narrow = room();
  narrow.ring_bytes = 10 * 32 * 1000;
  EXPECT_EQ(of(tune_axes(e, narrow), "data.prefetch"), (Values{"auto", "2", "4"}));
}

TEST(Tuning, GlobalBatchesComeWithTheMicroBatchThatFits) {
  TuneLimits free = room();
  free.max_global_batch = 1100;
  const auto axes = tune_axes(starved(), free);
  const SearchAxis* axis = find(axes, "train.global_batch");
  ASSERT_NE(axis, nullptr);
  EXPECT_EQ(axis->values, (Values{"256", "512", "1024"}));
  ASSERT_EQ(axis->coupled_settings.size(), 3u);
  EXPECT_EQ(axis->coupled_settings[1], (Settings{{"train.micro_batch", "86"}}))
      << "256 samples per rank need three parts of at most 100";
}

TEST(Tuning, TheLargestBoundIsSearchedFirstAndSmallBoundsAreSkipped) {
  BottleneckMetrics e = starved();
  auto axes = tune_axes(e, room());
  ASSERT_TRUE(next_axis(e, axes));
  EXPECT_EQ(axes[*next_axis(e, axes)].key, "data.reader");
  e.without.input = 0.0198;
  e.without.communication = 0.009;
  EXPECT_EQ(axes[*next_axis(e, axes)].key, "comm.bucket_size");
  e.without.communication = 0.0197;
  EXPECT_EQ(axes[*next_axis(e, axes)].key, "train.micro_batch");
  std::erase_if(axes, [](const SearchAxis& a) { return a.bound == Bound::compute; });
  EXPECT_FALSE(next_axis(e, axes)) << "each other bound takes at most 1 %";
}

// The values that next_value() asks for if a value is kept when it is faster than the best so far.
std::vector<int> path(const SearchAxis& axis, const std::vector<double>& speed) {
  std::vector<TriedValue> tried;
  std::vector<int> out;
  double best = speed[std::size_t(axis.now)];
  while (const auto value = next_value(axis, tried)) {
    const double now = speed[std::size_t(*value)];
    tried.push_back({*value, now > best});
    best = std::max(best, now);
    out.push_back(*value);
  }
  return out;
}

TEST(Tuning, SearchesNeighboursOfTheBestUntilNoneIsFaster) {
  SearchAxis axis{Bound::input, "k", {"1", "2", "4", "8", "16"}, 1, {}, true, 0, {}};
  EXPECT_EQ(path(axis, {1, 2, 3, 4, 3}), (std::vector<int>{2, 3, 4})) << "not below the start, which was slower";
  EXPECT_EQ(path(axis, {3, 2, 1, 9, 9}), (std::vector<int>{2, 0})) << "the search is greedy";
  EXPECT_EQ(path(axis, {1, 2, 1, 1, 1}), (std::vector<int>{2, 0}));
  axis.first = {4};  // begins with the largest value
  EXPECT_EQ(path(axis, {1, 2, 3, 4, 5}), (std::vector<int>{4, 3}));
  EXPECT_EQ(path(axis, {1, 2, 3, 4, 1}), (std::vector<int>{4, 2, 3}));
  axis.ordered_values = false;
  axis.first = {0, 2, 3};
  EXPECT_EQ(path(axis, {1, 2, 3, 4, 5}), (std::vector<int>{0, 2, 3}));
  SearchAxis ring{Bound::input, "k", {"auto", "2", "4", "16", "64"}, 0, {2, 3}, true, 1, {}};
  EXPECT_EQ(path(ring, {9, 1, 1, 1, 1}), (std::vector<int>{2, 3})) << "auto has no neighbours";
  EXPECT_EQ(path(ring, {1, 2, 3, 4, 5}), (std::vector<int>{2, 3, 4}));
}

TEST(Tuning, LargeGainsNeedThreeRoundsAndLossesOne) {
  const double noise = 0.02;
  EXPECT_EQ(decide_trial({}, noise), TrialDecision::more);
  EXPECT_EQ(decide_trial({1.5}, noise), TrialDecision::more) << "one round proves nothing";
  EXPECT_EQ(decide_trial({1.5, 1.4}, noise), TrialDecision::more) << "two rounds may fall into one slow moment";
  EXPECT_EQ(decide_trial({1.5, 1.4, 1.6}, noise), TrialDecision::keep);
  EXPECT_EQ(decide_trial({0.9}, noise), TrialDecision::drop);
  EXPECT_EQ(decide_trial({1.05}, noise), TrialDecision::more);
  EXPECT_EQ(decide_trial({1.05, 1.06, 1.04, 1.05, 1.05}, noise), TrialDecision::keep);
  EXPECT_EQ(decide_trial({1.02, 1.02, 1.02, 1.02, 1.02}, noise), TrialDecision::drop) << "not worth it";
  EXPECT_EQ(decide_trial({1.3, 1.3, 1.4, 0.9, 0.95}, noise), TrialDecision::drop) << "a burst that did not repeat";
  EXPECT_EQ(decide_trial({1.05, 1.06, 1.04, 1.05, 1.05}, 0.10), TrialDecision::drop)
      << "within the noise of a busy machine";
  for (int n = 1; n < max_rounds; ++n)
    EXPECT_NE(decide_trial(std::vector<double>(std::size_t(n), 0.8), 0.5), TrialDecision::keep);
  EXPECT_NE(decide_trial(std::vector<double>(max_rounds, 1.1), 0.5), TrialDecision::more) << "it ends";
}

// Simulated measurements with noise.
TEST(Tuning, FewEqualConfigurationsAreKeptAndMostFasterOnesAre) {
  std::mt19937 random(7);
  const auto measured = [&](double seconds, double noise) {
    double sum = -6;  // twelve uniform numbers are nearly normal
    for (int i = 0; i < 12; ++i) sum += double(random()) / 4294967296.0;
    return seconds * std::exp(noise * sum);
  };
  for (const double noise : {0.01, 0.03, 0.08}) {
    std::vector<double> differences, same;
    for (int i = 0; i < 40; ++i) same.push_back(measured(1, noise));
    add_differences(differences, same);
    ASSERT_EQ(differences.size(), 39u);
    EXPECT_NEAR(noise_of(differences), noise, 0.6 * noise);
    const auto kept = [&](double gain) {
      int count = 0;
      for (int trial = 0; trial < 400; ++trial) {
        std::vector<double> gains;
        while (decide_trial(gains, noise) == TrialDecision::more)
          gains.push_back(measured(gain, noise) / measured(1, noise));
        count += decide_trial(gains, noise) == TrialDecision::keep;
      }
      return count;
    };
    EXPECT_LE(kept(1), 20) << noise;  // of 400
    EXPECT_GE(kept(1 + 6 * noise), 340) << noise;
  }
  EXPECT_EQ(noise_of({}), 0.01);
}

TEST(Tuning, LearningRateNoteFollowsTheLinearScalingRule) {
  const std::string plain = learning_rate_note({"sgd", 0.1, 0, 128, 512});
  EXPECT_NE(plain.find("optim.lr stays 0.1;"), plain.npos) << plain;
  EXPECT_NE(plain.find("gives 0.4: set optim.lr_batch = 128"), plain.npos) << plain;
  EXPECT_EQ(plain.find("Adam"), plain.npos);
  const std::string adam = learning_rate_note({"adamw", 0.001, 0, 128, 512});
  EXPECT_NE(adam.find("optim.lr = 0.002"), adam.npos) << adam;
  const std::string scaled = learning_rate_note({"sgd", 0.1, 256, 256, 1024});
  EXPECT_NE(scaled.find("scales with the batch: 0.1 -> 0.4"), scaled.npos) << scaled;
}

TEST(Tuning, SnippetHasSectionsAndComments) {
  EXPECT_EQ(
      config_snippet({{"data.workers", "2"}, {"train.micro_batch", "64"}, {"data.reader", "mmap"}}, {"mind this"}),
      "# mind this\n[data]\nworkers = 2\nreader = mmap\n[train]\nmicro_batch = 64\n");
}

TuneOutcome found() {
  TuneOutcome out;
  out.before = starved();
  out.noise = 0.02;
  out.trials = {{"data.workers", "1", "2", {0.010, 0.010}, {0.020, 0.021}, true, ""},
                {"data.reader", "mmap", "uring", {}, {}, false, "no io_uring here"},
                {"train.micro_batch", "32", "64", {0.011}, {0.010}, false, ""}};
  out.changes = {{"data.workers", "2"}};
  out.tuned = {0.010, 0.011, 0.010};
  out.baseline = {0.020, 0.020, 0.021};
  out.untried = {"comm.bucket_size: it keeps its value (--keep)"};
  return out;
}

TEST(Tuning, ReportBeginsWithTheGainOfAllChangesTogether) {
  TuneOutcome out = found();
  const std::string text = tuning_report(out);
  EXPECT_EQ(text.find("2.00x, measured with all changes together: 20.00 -> 10.00 ms per step (medians of 3 alternating "
                      "rounds, 1.82x to 2.10x), with\n\n[data]\nworkers = 2\n"),
            0u)
      << text;
  for (const char* part : {"1 -> 2 ", "2.05x in 2 rounds, kept", "failed: no io_uring here", "0.91x in 1 round\n",
                           "not tried: comm.bucket_size"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  out.tuned = {0.020, 0.019, 0.021};
  EXPECT_FALSE(out.is_significant());
  EXPECT_EQ(tuning_report(out).find("nothing worth changing: all changes together do not gain more than the noise"),
            0u);
  EXPECT_EQ(tuning_report(out).find("[data]"), std::string::npos) << "lines without a gain are not printed for pasting";
  out.tuned.clear();
  out.stopped = "asked to stop";
  EXPECT_EQ(tuning_report(out).find("found so far, not confirmed with all changes together:\n\n[data]\n"), 0u);
  out.changes.clear();
  EXPECT_EQ(tuning_report(out).find("nothing worth changing: none of 3 trials"), 0u);
  out.start_failure = "too much";
  out.changes = {{"train.micro_batch", "8"}};
  out.tuned = {0.02};
  out.baseline.clear();
  EXPECT_EQ(tuning_report(out).find("the configuration does not run: too much\nthis one takes 20.00 ms per step:\n"),
            0u)
      << tuning_report(out);
}

}  // namespace tuning_test
}  // namespace millrace
