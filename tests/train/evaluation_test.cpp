// The metrics of an evaluation against those that follow from the weights in the checkpoint, by hand.
#include "train/session/evaluation.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/files.hpp"
#include "millrace/config/keys.hpp"
#include "support/device_values.hpp"
#include "support/expect_error.hpp"
#include "train/linear_run.hpp"

namespace millrace {
namespace evaluation_test {

using nlohmann::json;
using test::labels_of, test::LinearRun, test::targets;

TEST(Evaluation, CountsEachClassOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2}) {
    LinearRun run(DType::i32, labels_of(4), Loss::automatic);
    run.config.checkpoint.best = BestMetric::macro_f1;
    run.train(ranks);
    std::vector<std::vector<int>> confusion(4, std::vector<int>(4));
    const auto logits = run.predictions();
    for (std::size_t r = 0; r < logits.size(); ++r)
      if (run.y[r] >= 0)
        ++confusion[std::size_t(run.y[r])][std::size_t(std::ranges::max_element(logits[r]) - logits[r].begin())];
    EXPECT_EQ(run.summary().at("valid_confusion"), json(confusion));
    double f1 = 0, occurring = 0;
    for (std::size_t c = 0; c < 4; ++c) {
      double labels = 0, said = 0;
      for (std::size_t k = 0; k < 4; ++k) {
        labels += confusion[c][k];
        said += confusion[k][c];
      }
      const json of_class = run.summary().at("valid_classes").at(c);
      EXPECT_DOUBLE_EQ(of_class.at("recall"), labels > 0 ? confusion[c][c] / labels : 0);
      EXPECT_DOUBLE_EQ(of_class.at("precision"), said > 0 ? confusion[c][c] / said : 0);
      if (labels + said == 0) continue;
      f1 += 2 * confusion[c][c] / (labels + said);
      ++occurring;
    }
    EXPECT_DOUBLE_EQ(run.summary().at("valid_macro_f1"), f1 / occurring);
    EXPECT_DOUBLE_EQ(run.summary().at("valid_macro_average").at("f1"), f1 / occurring);
    EXPECT_DOUBLE_EQ(run.last_validation().at("macro_f1"), f1 / occurring);
    testing::internal::CaptureStdout();
    run_thread_world(ranks, [&](World& world) { evaluate(world, run.config, {run.config.run.dir, "newest"}); });
    const std::string shown = testing::internal::GetCapturedStdout();
    const json first = run.summary().at("valid_classes").at(0);
    EXPECT_NE(shown.find(fmt::format("\n    0 {:>12} {:>12} {:>10.4f} {:>10.4f} {:>10.4f}\n", int(first.at("labels")),
                                     int(first.at("predictions")), double(first.at("precision")),
                                     double(first.at("recall")), double(first.at("f1")))),
              shown.npos)
        << shown;
    const json written = json::parse(read_file(run.path / "run" / "evaluation.json"));
    for (const char* name : {"classes", "confusion", "macro_f1", "auc", "accuracy", "weighted_average"})
      EXPECT_EQ(written.at(name), run.summary().at(std::string("valid_") + name)) << name;
    EXPECT_EQ(written.at("step"), 1);
  }
}

// The averages of scikit-learn's classification_report for labels 0 0 0 1 1 2 and predictions 0 0 1 1 1 0.
TEST(Evaluation, AveragesAreThoseOfTheClasses) {
  const double counts[] = {2, 1, 0, 0, 2, 0, 1, 0, 0};
  const auto classes = class_counts(counts, Task::classes);
  const ClassAverages macro = macro_average(classes), weighted = weighted_average(classes);
  EXPECT_DOUBLE_EQ(macro.precision, (2.0 / 3 + 2.0 / 3 + 0) / 3);
  EXPECT_DOUBLE_EQ(macro.recall, (2.0 / 3 + 1 + 0) / 3);
  EXPECT_DOUBLE_EQ(weighted.precision, (3 * 2.0 / 3 + 2 * 2.0 / 3) / 6);
  EXPECT_DOUBLE_EQ(weighted.f1, (3 * 2.0 / 3 + 2 * 0.8) / 6);
}

TEST(Evaluation, MeasuresTheErrorsOfARegressionOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2})
    for (const auto reproducible : {Reproducible::setup, Reproducible::strict}) {
      LinearRun run(DType::f32, targets(2), Loss::smooth_l1);
      run.config.model.beta = 0.5;
      run.config.run.reproducible = reproducible;
      run.train(ranks);
      double absolute = 0, squares = 0, mean = 0, variation = 0, loss = 0;
      const double n = double(run.y.size());
      for (const float y : run.y) mean += double(y) / n;
      const auto predictions = run.predictions();
      for (std::size_t i = 0; i < run.y.size(); ++i) {
        const double d = std::abs(predictions[i / 2][i % 2] - double(run.y[i]));
        absolute += d;
        squares += d * d;
        variation += (double(run.y[i]) - mean) * (double(run.y[i]) - mean);
        loss += (d < 0.5 ? d * d : d - 0.25) / n;
      }
      EXPECT_NEAR(run.summary().at("valid_loss"), loss, 1e-6);
      EXPECT_NEAR(run.summary().at("valid_mae"), absolute / n, 1e-6);
      EXPECT_NEAR(run.summary().at("valid_rmse"), std::sqrt(squares / n), 1e-6);
      EXPECT_NEAR(run.last_validation().at("r2"), 1 - squares / variation, 1e-6);
    }
}

// Several labels a sample as floating-point numbers, and one as an integer.
TEST(Evaluation, CountsLabelsThatAreZeroOrOne) {
  for (const int ranks : {1, 2})
    for (const bool integers : {false, true}) {
      std::vector<float> several = targets(3);
      for (float& v : several) v = v > 1 ? 1 : 0;
      LinearRun run = integers ? LinearRun(DType::i32, labels_of(2), Loss::binary_cross_entropy)
                               : LinearRun(DType::f32, several, Loss::binary_cross_entropy);
      run.train(ranks);
      const auto logits = run.predictions();
      const std::size_t outputs = integers ? 1 : 3;
      double counted = 0, right = 0, loss = 0;
      for (std::size_t i = 0; i < run.y.size(); ++i) {
        const double z = logits[i / outputs][i % outputs], y = double(run.y[i]);
        if (y < 0) continue;
        ++counted;
        right += (z >= 0) == (y == 1);
        loss += std::log1p(std::exp(-z)) + (1 - y) * z;
      }
      EXPECT_NEAR(run.summary().at("valid_loss"), loss / counted, 1e-6);
      EXPECT_DOUBLE_EQ(run.summary().at("valid_accuracy"), right / counted);
      EXPECT_TRUE(run.summary().at("valid_top5").is_null());
      EXPECT_EQ(run.summary().at("valid_confusion").size(), outputs);
    }
}

TEST(Evaluation, RefusesKeysThatDoNotSuitTheData) {
  const auto refusal = [](LinearRun& run) { return test::message_of([&] { run.train(1); }, Exit::config); };
  LinearRun regression(DType::f32, targets(2), Loss::mae);
  regression.config.checkpoint.best = BestMetric::mean_iou;
  EXPECT_EQ(
      refusal(regression),
      "checkpoint.best: an evaluation of these data and this loss has no mean_iou. use one of loss, mae, rmse, r2");
  regression.config.checkpoint.best = BestMetric::loss;
  regression.config.model.class_weights = {"1", "2"};
  EXPECT_EQ(refusal(regression), "model.class_weights: the loss is mae, not cross_entropy. remove the key");
  LinearRun classes(DType::i32, labels_of(4), Loss::binary_cross_entropy);
  EXPECT_EQ(refusal(classes),
            "model.loss: binary_cross_entropy needs labels that are 0 or 1, but data.y has labels up to 3. set it to "
            "auto");
  classes.config.model.loss = Loss::mae;
  EXPECT_EQ(refusal(classes), "model.loss: mae needs float targets, but data.y holds class labels. set it to auto");
  classes.config.model.loss = Loss::automatic;
  classes.config.model.class_weights = {"1", "2"};
  EXPECT_EQ(refusal(classes), "model.class_weights: 2 weights with the sum 3 for 4 classes. give one for each class");
  classes.config.model.class_weights = {};
  classes.config.model.dice = 1;
  EXPECT_EQ(refusal(classes), "model.dice: it needs cross_entropy and a label at each pixel. set model.dice = 0");
}

TEST(Evaluation, PerplexityOfLanguageFollowsFromTheLoss) {
  LinearRun run(DType::i32, labels_of(4), Loss::automatic);
  std::vector<std::uint8_t> tokens;
  for (int i = 0; i < 200; ++i) tokens.push_back(std::uint8_t(i * i % 7));
  {
    io::File file = io::File::create((run.path / "data.h5").string());
    file.create_dataset("/x", DType::u8, {200});
    file.write_rows("/x", 0, 200, DType::u8, tokens.data());
  }
  run.config.data.sample = SampleKind::tokens;
  run.config.data.token_labels = TokenLabels::every;
  run.config.data.window = 5;
  run.config.data.vocabulary = 7;
  run.config.model.layers = {"embedding 4", "linear outputs axis=last"};
  run.config.checkpoint.best = BestMetric::perplexity;
  for (const int ranks : {1, 2}) {
    run.train(ranks);
    EXPECT_DOUBLE_EQ(run.summary().at("valid_perplexity"), std::exp(double(run.summary().at("valid_loss"))));
    EXPECT_FALSE(run.summary().contains("valid_confusion"));
  }
  run.config.model.label_smoothing = 0.1;
  EXPECT_EQ(test::message_of([&] { run.train(1); }, Exit::config),
            "checkpoint.best: an evaluation of these data and this loss has no perplexity. use one of loss, accuracy, "
            "top5");
}

TEST(Evaluation, NamesASampleWithATargetThatIsNoProbability) {
  std::vector<float> y(LinearRun::rows * 2, 1);
  y[2 * 17 + 1] = 1.5;
  LinearRun run(DType::f32, y, Loss::binary_cross_entropy);
  run.config.train.global_batch = LinearRun::rows;
  run.config.train.steps = 4;
  const std::string message = test::message_of(
      [&] { run_thread_world(2, [&](World& world) { millrace::train(world, run.config); }); }, Exit::diverged);
  EXPECT_NE(message.find("sample 17 of the data, in "), message.npos) << message;
  EXPECT_NE(message.find("a target that is not between 0 and 1"), message.npos) << message;
}

TEST(Evaluation, LowerErrorsAreBetter) {
  for (const char* name : {"loss", "perplexity", "mae", "rmse"}) EXPECT_TRUE(lower_is_better(name)) << name;
  for (const char* name : {"accuracy", "top5", "macro_f1", "auc", "mean_iou", "mean_dice", "r2"})
    EXPECT_FALSE(lower_is_better(name)) << name;
}

TEST(Evaluation, MetricsHaveTheNamesOfTheConfiguration) {
  RunConfig config;
  for (int i = int(BestMetric::loss); i <= int(BestMetric::r2); ++i) {
    config.checkpoint.best = BestMetric(i);
    EXPECT_EQ(value_text(config, "checkpoint.best"), traits_of(BestMetric(i)).name);
  }
}

TEST(Evaluation, MeansAreOverTheClassesThatOccur) {
  // Class 2 never occurs. Class 0: 3 of 4 right; class 1: 2 right, and one prediction too many.
  const double counts[] = {3, 1, 0, 0, 2, 0, 0, 0, 0};
  const auto classes = class_counts(counts, Task::pixels);
  EXPECT_EQ(classes[0].labels, 4);
  EXPECT_EQ(classes[1].predictions, 3);
  const auto means = class_metrics(classes, Task::pixels);
  EXPECT_DOUBLE_EQ(means[0].second, (3.0 / 4 + 2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(means[1].second, (6.0 / 7 + 4.0 / 5) / 2);
  EXPECT_NE(class_table(classes, Task::pixels, {"sky", "tree"}).find("0.7500  sky\n"), std::string::npos);
}

}  // namespace evaluation_test
}  // namespace millrace
