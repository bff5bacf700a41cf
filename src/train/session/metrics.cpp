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

namespace {

// Of the targets of an output, in their unit.
struct OutputMoments {
  double mean = 0;
  double variation = 0;  // sum of squared distances to the mean
  double scale = 1;      // from the unit of the loss to that of the targets
};

OutputMoments moments_of(const RegressionSums& r, std::size_t output) {
  OutputMoments out;
  const double *const of = &r.sums[4 * output], distance = of[2] / r.values;  // of the mean from the origin
  out.mean = r.origins[output] + distance;
  out.variation = std::max(0.0, of[3] - distance * of[2]);
  if (r.std.empty()) return out;
  const std::size_t which = output % r.std.size();
  out.scale = r.std[which];
  out.mean = out.mean * out.scale + r.mean[which];
  out.variation *= out.scale * out.scale;
  return out;
}

RegressionErrors errors(double absolute, double squares, double variation, double values) {
  return {absolute / values, std::sqrt(squares / values),
          variation > 0 ? 1 - squares / variation : std::numeric_limits<double>::quiet_NaN()};
}

}  // namespace

std::vector<RegressionErrors> errors_of_outputs(const RegressionSums& r) {
  std::vector<RegressionErrors> out;
  for (std::size_t o = 0; o < r.origins.size(); ++o) {
    const OutputMoments m = moments_of(r, o);
    out.push_back(errors(r.sums[4 * o] * m.scale, r.sums[4 * o + 1] * m.scale * m.scale, m.variation, r.values));
  }
  return out;
}

RegressionErrors errors_of_all(const RegressionSums& r) {
  double absolute = 0, squares = 0, mean = 0, variation = 0;
  const auto outputs = double(r.origins.size());
  for (std::size_t o = 0; o < r.origins.size(); ++o) {
    const OutputMoments m = moments_of(r, o);
    absolute += r.sums[4 * o] * m.scale;
    squares += r.sums[4 * o + 1] * m.scale * m.scale;
    const double distance = m.mean - mean;  // from the mean of the outputs before, as in Chan's update
    variation += m.variation + r.values * distance * distance * double(o) / double(o + 1);
    mean += distance / double(o + 1);
  }
  return errors(absolute, squares, variation, r.values * outputs);
}

namespace {

template <class Weight>
ClassAverages average(const std::vector<ClassCounts>& classes, const Weight& weight) {
  ClassAverages out;
  double sum = 0;
  for (const ClassCounts& c : classes) {
    const double w = weight(c);
    out.precision += w * c.precision();
    out.recall += w * c.recall();
    out.f1 += w * c.f1();
    sum += w;
  }
  return {out.precision / sum, out.recall / sum, out.f1 / sum};
}

}  // namespace

ClassAverages macro_average(const std::vector<ClassCounts>& classes) {
  return average(classes, [](const ClassCounts& c) { return double(c.occurs()); });
}

ClassAverages weighted_average(const std::vector<ClassCounts>& classes) {
  return average(classes, [](const ClassCounts& c) { return double(c.labels); });
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
  if (task == Task::pixels) return out;
  const auto add = [&](const char* name, const ClassAverages& a) {
    out += fmt::format("{:<31} {:>10.4f} {:>10.4f} {:>10.4f}\n", name, a.precision, a.recall, a.f1);
  };
  add("mean of the classes", macro_average(classes));
  add("mean weighted by labels", weighted_average(classes));
  return out;
}

std::string output_table(const std::vector<RegressionErrors>& outputs) {
  std::string out = fmt::format("{:>6} {:>12} {:>12} {:>10}\n", "output", "MAE", "RMSE", "R2");
  for (std::size_t i = 0; i < outputs.size(); ++i)
    out += fmt::format("{:>6} {:>12.6g} {:>12.6g} {:>10.4f}\n", i, outputs[i].mae, outputs[i].rmse, outputs[i].r2);
  return out;
}

}  // namespace millrace
