// The area under the ROC curve from histograms, against scikit-learn 1.9.1.
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/base/files.hpp"
#include "support/expect_error.hpp"
#include "train/linear_run.hpp"
#include "train/session/metrics.hpp"

namespace millrace {
namespace auc_test {

using test::labels_of, test::LinearRun, test::targets;

struct Score {
  double value;
  bool positive;
};
using Scores = std::vector<std::vector<Score>>;  // by class

std::vector<double> histograms(const Scores& scores) {
  std::vector<double> out(std::size_t(ScoreBins::histogram_count(std::int64_t(scores.size()))));
  for (std::size_t c = 0; c < scores.size(); ++c)
    for (const Score& s : scores[c])
      out[std::size_t(ScoreBins::place(std::int64_t(c), s.positive, float(s.value)))] += 1;
  return out;
}

// The share of pairs whose positive has the larger score. Equal scores count half.
double exact_area(const Scores& scores) {
  double sum = 0;
  for (const auto& of_class : scores) {
    double right = 0, pairs = 0;
    for (const Score& a : of_class)
      for (const Score& b : of_class)
        if (a.positive && !b.positive) {
          right += a.value > b.value ? 1 : a.value == b.value ? 0.5 : 0;
          ++pairs;
        }
    sum += right / pairs;
  }
  return sum / double(scores.size());
}

// As docs/reference/metrics.md says: half of the share of pairs that are in the same bin.
double bound(const Scores& scores) {
  const auto bins = histograms(scores);
  double sum = 0;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    double same = 0, positives = 0, others = 0;
    for (std::size_t b = 0; b < ScoreBins::count; ++b) {
      const double other = bins[2 * c * ScoreBins::count + b], own = bins[(2 * c + 1) * ScoreBins::count + b];
      same += own * other;
      positives += own;
      others += other;
    }
    sum += same / (positives * others) / 2;
  }
  return sum / double(scores.size());
}

double logit(std::size_t r, std::size_t c) { return double((r * 37 + c * 101 + r * c * 13) % 199) / 40; }

// roc_auc_score(labels, softmax(logits), multi_class="ovr", average="macro")
TEST(Auc, OfClassesEqualsScikitLearn) {
  Scores scores(3);
  for (std::size_t r = 0; r < 300; ++r) {
    const std::size_t label = r * 7 / 3 % 3;
    double z[3], sum = 0;
    for (std::size_t c = 0; c < 3; ++c) sum += std::exp(z[c] = logit(r, c) + (label == c));
    for (std::size_t c = 0; c < 3; ++c) scores[c].push_back({z[c] - std::log(sum - std::exp(z[c])), label == c});
  }
  EXPECT_LT(bound(scores), 0.003);
  EXPECT_NEAR(area_under_roc(histograms(scores)), 0.7158666666666668, bound(scores));
}

// roc_auc_score(targets, sigmoid(logits), average="macro"), and of a single label
TEST(Auc, OfSeveralLabelsEqualsScikitLearn) {
  Scores scores(3), single(1);
  for (std::size_t r = 0; r < 300; ++r) {
    for (std::size_t c = 0; c < 3; ++c) {
      const bool positive = r * (c + 2) / 5 % 4 == 0;
      scores[c].push_back({logit(r, c) - 2.5 + positive, positive});
    }
    const bool positive = r * 7 / 3 % 3 == 1;
    single[0].push_back({logit(r, 1) + positive, positive});
  }
  EXPECT_NEAR(area_under_roc(histograms(scores)), 0.6969957231040563, bound(scores));
  EXPECT_NEAR(area_under_roc(histograms(single)), 0.671175, bound(single));
}

TEST(Auc, LeavesOutClassesThatAreNeverOrAlwaysTheLabel) {
  const Scores scores = {{{1, true}, {0, false}, {-1, true}}, {{1, true}, {2, true}, {3, true}}, {{1, false}}};
  EXPECT_EQ(area_under_roc(histograms(scores)), 0.5);
  EXPECT_TRUE(std::isnan(area_under_roc(histograms({{{1, true}}}))));
  // Scores beyond the bins are in the outer ones.
  EXPECT_EQ(area_under_roc(histograms({{{1e30, true}, {16, false}, {-99, false}, {-INFINITY, true}}})), 0.5);
}

TEST(Auc, IsMeasuredOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2})
    for (const int outputs : {4, 3, 1}) {  // classes; several labels; one label
      std::vector<float> several = targets(3);
      for (float& v : several) v = v > 1 ? 1 : 0;
      LinearRun run = outputs == 4   ? LinearRun(DType::i32, labels_of(4), Loss::automatic)
                      : outputs == 3 ? LinearRun(DType::f32, several, Loss::binary_cross_entropy)
                                     : LinearRun(DType::i32, labels_of(2), Loss::binary_cross_entropy);
      run.config.checkpoint.best = BestMetric::auc;
      run.train(ranks);
      const auto logits = run.predictions();
      Scores scores{std::size_t(outputs)};
      for (std::size_t r = 0; r < logits.size(); ++r)
        for (std::size_t c = 0; c < scores.size(); ++c) {
          const double y = double(run.y[outputs == 3 ? r * 3 + c : r]), z = logits[r][c];
          if (y < 0) continue;
          double others = outputs == 4 ? -std::exp(z) : 1;
          for (std::size_t k = 0; k < 4 && outputs == 4; ++k) others += std::exp(logits[r][k]);
          scores[c].push_back({z - std::log(others), outputs == 4 ? y == double(c) : y == 1});
        }
      // A score at the border of two bins may be in the other one.
      const double within = bound(scores) + 1e-3;
      EXPECT_LT(within, 0.03);
      EXPECT_NEAR(run.summary().at("valid_auc"), exact_area(scores), within) << outputs;
      EXPECT_EQ(run.summary().at("valid_auc"), run.last_validation().at("auc"));
    }
}

TEST(Auc, IsNotMeasuredOfManyClasses) {
  LinearRun run(DType::i32, labels_of(4), Loss::automatic);
  io::File::append((run.path / "data.h5").string()).set("/", "classes", std::int64_t(257));
  run.config.checkpoint.best = BestMetric::auc;
  EXPECT_EQ(test::message_of([&] { run.train(1); }, Exit::config),
            "checkpoint.best: an evaluation of these data and this loss has no auc. use one of loss, accuracy, top5, "
            "macro_f1");
}

}  // namespace auc_test
}  // namespace millrace
