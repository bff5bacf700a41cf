#include "train/step/evaluation_sums.hpp"

#include <bit>
#include <cmath>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/data/load/slot_layout.hpp"

namespace millrace {

std::size_t first_target_of(const Graph& graph, const Node& loss) {
  for (const Node& node : graph.nodes)
    if (node.dst == loss.src[1])
      if (const auto* part = std::get_if<SliceSpec>(&node.spec)) return std::size_t(part->begin);
  return 0;
}

EvaluationSums::EvaluationSums(Session& s, Network& network) : s_(s), network_(network) {
  if (s.spec.model.tokens) return;
  const Graph graph = graph_of(s.spec, 1, Mode::infer);
  for (const int node : graph.losses()) {
    const Node& loss = graph.nodes[std::size_t(node)];
    add_loss(loss.spec, first_target_of(graph, loss));
  }
}

void EvaluationSums::add_loss(const Spec& spec, std::size_t first_target) {
  Loss out{.task = task_of(spec), .counts = counts_of(spec)};
  if (!losses_.empty()) out.begin = losses_.back().begin + losses_.back().count;
  out.count = std::size_t(metric_count(spec));
  if (out.task == Task::regression) {
    const auto& loss = std::get<PointwiseLossSpec>(spec);
    out.counts = {};
    out.outputs = std::size_t(loss.outputs());
    out.values_of_output = std::size_t(loss.src.row_count()) / out.outputs;
    out.first_target = first_target;
    out.exact.resize(4 * out.outputs);
  }
  losses_.push_back(std::move(out));
}

// The first sample is read once, by rank 0.
void EvaluationSums::read_origins() {
  const ShardIndex& data = s_.data.valid;
  std::vector<float> y(SlotLayout(data, 1).y_bytes / sizeof(float));
  const std::string problem = message_of([&] {
    if (s_.world.rank() != 0) return;
    std::vector<char> x(data.sample_bytes());
    std::int64_t id = 0;
    s_.batching.valid_order->ids({0, 0, 0, 1}, &id);
    s_.data.valid_source->read({&id, 1}, x.data(), y.data());
  });
  s_.world.agree(Exit::data, problem);
  s_.world.broadcast(y.data(), y.size() * sizeof(float), 0);
  for (const Loss& loss : losses_) {
    std::vector<double> of_loss;
    const auto mean = normalisation(data.values.target_mean, loss), std = normalisation(data.values.target_std, loss);
    for (std::size_t o = 0; o < loss.outputs; ++o) {
      double value = double(y[loss.first_target + o]);
      if (!mean.empty()) value = (value - mean[o % mean.size()]) / std[o % std.size()];
      of_loss.push_back(std::isfinite(value) ? value : 0);
    }
    if (!of_loss.empty()) origins_[loss.begin + 4 * loss.outputs] = std::move(of_loss);
  }
}

// Of the targets of a loss, in the vectors of ValueConversion.
std::span<const double> EvaluationSums::normalisation(const std::vector<double>& all, const Loss& loss) const {
  if (all.size() <= 1) return all;
  return std::span(all).subspan(loss.first_target, loss.outputs);
}

void EvaluationSums::begin() {
  bool regression = false;
  for (Loss& loss : losses_) {
    loss.exact.assign(loss.exact.size(), {});
    regression = regression || loss.task == Task::regression;
  }
  if (regression && origins_.empty()) read_origins();
  network_.clear_metrics(origins_);
}

void EvaluationSums::after_micro_batch() {
  auto* sums = static_cast<double*>(network_.device_metrics());
  if (!sums || !s_.strict()) return;
  for (Loss& loss : losses_)
    for (std::size_t k = 0; k < loss.exact.size(); ++k) loss.exact[k].add(std::exchange(sums[loss.begin + k], 0));
}

std::vector<MetricValue> EvaluationSums::of_classes(const Loss& loss, std::span<const std::uint64_t> values,
                                                    Evaluation* details) {
  std::vector<double> counts(values.begin(), values.begin() + std::ptrdiff_t(loss.counts.confusion));
  std::vector<ClassCounts> classes = class_counts(counts, loss.task);
  std::vector<double> sums;  // far fewer than the counts if there are many classes
  for (const ClassCounts& one : classes)
    for (const std::int64_t n : {one.right, one.labels, one.predictions}) sums.push_back(double(n));
  s_.compute.collective->all_reduce_scalars(sums);
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = {std::int64_t(sums[3 * i]), std::int64_t(sums[3 * i + 1]), std::int64_t(sums[3 * i + 2])};
  std::vector<MetricValue> out = class_metrics(classes, loss.task);
  constexpr std::size_t max_classes = 100;
  if (!details) return out;
  details->classes = std::move(classes);
  if (details->classes.size() > max_classes) return out;
  s_.compute.collective->all_reduce_scalars(counts);
  details->confusion = std::move(counts);
  return out;
}

std::vector<MetricValue> EvaluationSums::of_counts(const Loss& loss, std::span<const std::uint64_t> values,
                                                   Evaluation* details) {
  std::vector<MetricValue> out;
  if (loss.counts.confusion > 0) out = of_classes(loss, values, details);
  if (loss.counts.scores == 0) return out;
  const auto of_scores = values.subspan(loss.counts.confusion, loss.counts.scores);
  std::vector<double> scores(of_scores.begin(), of_scores.end());
  s_.world.all_reduce(scores, World::Reduce::sum);  // many: all_reduce_scalars() is for a few
  out.push_back({BestMetric::auc, area_under_roc(scores)});
  return out;
}

std::vector<MetricValue> EvaluationSums::of_regression(const Loss& loss, std::span<const std::uint64_t> values,
                                                       double rows, std::vector<RegressionErrors>& outputs) {
  const std::size_t count = 4 * loss.outputs;
  std::vector<double> sums;
  if (s_.strict())
    for (const ExactDouble& sum : loss.exact) sums.insert(sums.end(), sum.parts.begin(), sum.parts.end());
  else
    for (std::size_t k = 0; k < count; ++k) sums.push_back(std::bit_cast<double>(values[k]));
  s_.compute.collective->all_reduce_scalars(sums);
  if (s_.strict())
    for (std::size_t k = 0; k < count; ++k) sums[k] = sums[3 * k] + (sums[3 * k + 1] + sums[3 * k + 2]);
  const ValueConversion& data = s_.data.valid.values;
  const RegressionSums all{std::span(sums).first(count), origins_.at(loss.begin + count),
                           rows * double(loss.values_of_output), normalisation(data.target_mean, loss),
                           normalisation(data.target_std, loss)};
  if (loss.outputs > 1) outputs = errors_of_outputs(all);
  const RegressionErrors e = errors_of_all(all);
  return {{BestMetric::mae, e.mae}, {BestMetric::rmse, e.rmse}, {BestMetric::r2, e.r2}};
}

std::vector<MetricValue> EvaluationSums::of_loss(const Loss& loss, std::span<const std::uint64_t> values, double rows,
                                                 Evaluation* details, std::vector<RegressionErrors>& outputs) {
  const auto own = values.subspan(loss.begin, loss.count);
  if (own.empty()) return {};
  if (loss.task == Task::regression) return of_regression(loss, own, rows, outputs);
  return of_counts(loss, own, details);
}

void EvaluationSums::add_metrics(Evaluation& out) {
  if (out.task == Task::language) {
    if (metrics_of(s_.spec).back() == BestMetric::perplexity)
      out.metrics = {{BestMetric::perplexity, std::exp(out.loss)}};
    return;
  }
  const std::vector<std::uint64_t> values = network_.read_metrics();
  if (values.empty()) return;
  if (out.task != Task::several) {
    out.metrics = of_loss(losses_[0], values, double(out.rows), &out, out.outputs);
    return;
  }
  for (std::size_t i = 0; i < out.losses.size(); ++i)
    out.losses[i].metrics = of_loss(losses_[i], values, double(out.rows), nullptr, out.losses[i].outputs);
}

}  // namespace millrace
