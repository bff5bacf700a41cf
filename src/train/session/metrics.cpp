#include "train/session/metrics.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr MetricTraits all_metrics[] = {{BestMetric::loss, "loss", "loss", true},
                                        {BestMetric::accuracy, "accuracy", "top-1", false},
                                        {BestMetric::top5, "top5", "top-5", false},
                                        {BestMetric::macro_f1, "macro_f1", "macro F1", false},
                                        {BestMetric::auc, "auc", "AUC", false},
                                        {BestMetric::mean_iou, "mean_iou", "mean IoU", false},
                                        {BestMetric::mean_dice, "mean_dice", "mean Dice", false},
                                        {BestMetric::perplexity, "perplexity", "perplexity", true},
                                        {BestMetric::mae, "mae", "MAE", true},
                                        {BestMetric::rmse, "rmse", "RMSE", true},
                                        {BestMetric::r2, "r2", "R2", false}};

}  // namespace

Task task_of(const Spec& loss) {
  if (const auto* pointwise = std::get_if<PointwiseLossSpec>(&loss))
    return pointwise->binary() ? Task::binary : Task::regression;
  const auto* chunked = std::get_if<LinearCrossEntropySpec>(&loss);
  return (chunked ? chunked->loss : std::get<CrossEntropySpec>(loss)).src.rank == 2 ? Task::classes : Task::pixels;
}

Task task_of(const NetworkSpec& spec) {
  if (spec.model.own_losses) return Task::several;
  if (spec.model.pointwise_loss)
    return *spec.model.pointwise_loss == PointwiseLossSpec::Kind::binary_cross_entropy ? Task::binary
                                                                                       : Task::regression;
  if (spec.model.tokens) return Task::language;
  return spec.batch.target.rank > 0 ? Task::pixels : Task::classes;
}

const MetricTraits& traits_of(BestMetric metric) {
  return *std::ranges::find(all_metrics, metric, &MetricTraits::metric);
}

bool lower_is_better(std::string_view name) {
  return std::ranges::any_of(all_metrics, [&](const MetricTraits& m) { return m.name == name && m.lower_is_better; });
}

std::vector<BestMetric> metrics_of(const NetworkSpec& spec) {
  using enum BestMetric;
  const EvaluationCounts counts = counts_of(spec);
  std::vector<BestMetric> out{loss};
  const auto add = [&](std::initializer_list<BestMetric> more, bool given = true) {
    if (given) out.insert(out.end(), more);
  };
  switch (task_of(spec)) {
    case Task::classes:
      add({accuracy, top5});
      add({macro_f1}, counts.confusion > 0);
      add({auc}, counts.scores > 0);
      break;
    case Task::pixels:
      add({accuracy, top5});
      add({mean_iou, mean_dice}, counts.confusion > 0);
      break;
    case Task::language:  // with smoothing or weights, the loss is not that of the labels alone
      add({accuracy, top5});
      add({perplexity}, spec.model.label_smoothing == 0 && spec.model.class_weights.empty());
      break;
    case Task::binary:
      add({accuracy});
      add({macro_f1}, counts.confusion > 0);
      add({auc}, counts.scores > 0);
      break;
    case Task::regression:
      add({mae, rmse, r2});
      break;
    case Task::several:
      break;
  }
  return out;
}

EvaluationCounts counts_of(const NetworkSpec& spec) {
  const Task task = task_of(spec);
  if (task == Task::regression || task == Task::several) return {};
  if (task == Task::binary) {
    const PointwiseLossSpec loss{.kind = PointwiseLossSpec::Kind::binary_cross_entropy, .src = {1, spec.model.outputs}};
    return {std::size_t(loss.confusion_count()), std::size_t(loss.histogram_count())};
  }
  CrossEntropySpec loss;
  loss.src = {1, spec.model.outputs};
  return {std::size_t(loss.confusion_count()), task == Task::classes ? std::size_t(loss.histogram_count()) : 0};
}

EvaluationCounts counts_of(const Spec& loss) {
  const auto of = [](const auto& s) {
    return EvaluationCounts{std::size_t(s.confusion_count()), std::size_t(s.histogram_count())};
  };
  if (const auto* pointwise = std::get_if<PointwiseLossSpec>(&loss)) return of(*pointwise);
  const auto* chunked = std::get_if<LinearCrossEntropySpec>(&loss);
  return of(chunked ? chunked->loss : std::get<CrossEntropySpec>(loss));
}

void require_metric(BestMetric metric, const NetworkSpec& spec) {
  const auto possible = metrics_of(spec);
  if (std::ranges::find(possible, metric) != possible.end()) return;
  std::string names;
  for (const BestMetric one : possible) names += fmt::format("{}{}", names.empty() ? "" : ", ", traits_of(one).name);
  fail(Exit::config, "checkpoint.best: an evaluation of these data and this loss has no {}. use one of {}",
       traits_of(metric).name, names);
}

std::vector<ClassCounts> class_counts(std::span<const double> counts, Task task) {
  const bool binary = task == Task::binary;
  const auto classes = binary ? counts.size() / 4 : std::size_t(std::lround(std::sqrt(double(counts.size()))));
  std::vector<ClassCounts> out(classes);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto n = std::int64_t(counts[i]);
    const std::size_t label = binary ? i / 4 : i / classes, prediction = binary ? i / 4 : i % classes;
    const bool labelled = !binary || i % 4 >= 2, predicted = !binary || i % 2 == 1;
    if (labelled) out[label].labels += n;
    if (predicted) out[prediction].predictions += n;
    if (labelled && predicted && label == prediction) out[label].right += n;
  }
  return out;
}

std::vector<MetricValue> class_metrics(const std::vector<ClassCounts>& classes, Task task) {
  double f1 = 0, iou = 0, occurring = 0;
  for (const ClassCounts& c : classes) {
    f1 += c.f1();
    iou += c.iou();
    occurring += c.occurs();
  }
  if (task != Task::pixels) return {{BestMetric::macro_f1, f1 / occurring}};
  return {{BestMetric::mean_iou, iou / occurring}, {BestMetric::mean_dice, f1 / occurring}};
}

double area_under_roc(std::span<const double> histograms) {
  constexpr auto bins = std::size_t(ScoreBins::count);
  double sum = 0, classes = 0;
  for (; !histograms.empty(); histograms = histograms.subspan(2 * bins)) {
    double below = 0, positives = 0, pairs = 0;  // below: others with a lower score
    for (std::size_t b = 0; b < bins; ++b) {
      const double others = histograms[b], own = histograms[bins + b];
      pairs += own * (below + others / 2);
      below += others;
      positives += own;
    }
    if (positives == 0 || below == 0) continue;
    sum += pairs / (positives * below);
    ++classes;
  }
  return classes > 0 ? sum / classes : std::numeric_limits<double>::quiet_NaN();
}

std::vector<MetricValue> regression_metrics(std::span<const double> sums, double values) {
  const double variation = sums[3] - sums[2] * sums[2] / values;
  const double r2 = variation > 0 ? 1 - sums[1] / variation : std::numeric_limits<double>::quiet_NaN();
  return {{BestMetric::mae, sums[0] / values}, {BestMetric::rmse, std::sqrt(sums[1] / values)}, {BestMetric::r2, r2}};
}

std::string class_table(const std::vector<ClassCounts>& classes, Task task, const std::vector<std::string>& names) {
  std::string out = fmt::format("{:>5} {:>12} {:>12} {:>10} {:>10} {:>10}\n", task == Task::binary ? "label" : "class",
                                "labels", "predictions", "precision", "recall", task == Task::pixels ? "IoU" : "F1");
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const ClassCounts& c = classes[i];
    out +=
        fmt::format("{:>5} {:>12} {:>12} {:>10.4f} {:>10.4f} {:>10.4f}{}\n", i, c.labels, c.predictions, c.precision(),
                    c.recall(), task == Task::pixels ? c.iou() : c.f1(), i < names.size() ? "  " + names[i] : "");
  }
  return out;
}

}  // namespace millrace
