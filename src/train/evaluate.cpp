#include "train/evaluate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/train/commands.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/load_weights.hpp"
#include "train/resume.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

Evaluator::Evaluator(Session& s, Network& network)
    : s_(s),
      network_(network),
      options_(s.loader_options()),
      slots_(*s.compute.device, s.data.valid, options_.max_rows, std::size_t(options_.device_slots)),
      losses_(graph_of(s.spec, 1, Mode::infer), s.spec.model.own_losses),
      forward_(*s.compute.device, network, "evaluation") {
  // Each evaluation creates a loader, and on a GPU its whole ring is pinned. So the ring is fixed to 4 slots instead of
  // the automatic size.
  if (options_.prefetch == 0 && !s.compute.device->shares_host_memory()) options_.prefetch = 4;
}

void BatchForward::run(const Batch& batch) {
  Program& program = network_.eval_program(batch.item.rows);
  const auto work = [&program, x = batch.x, y = batch.y, ids = batch.ids] { program.forward(x, y, ids, true); };
  if (!batch.slot) return work();  // the batch lies in host memory, at changing addresses: it cannot be captured
  auto& captured = captured_[{batch.item.rows, batch.slot}];
  if (!captured) captured = device_.capture(fmt::format("{} of {} rows", what_, batch.item.rows), work);
  captured->run();
}

// With run.reproducible = strict, after each micro-batch: moves the sums of the device, which shares the host's memory.
void Evaluator::add_exactly() {
  exact_.take(network_.device_state());
  auto* sums = static_cast<double*>(network_.device_metrics());
  if (!sums) return;
  std::size_t number = 0;
  for (const int node : network_.graph().losses()) {
    const Spec& loss = network_.graph().nodes[std::size_t(node)].spec;
    std::array<ExactDouble, 4>& exact = regression_sums_[number++];
    if (task_of(loss) == Task::regression)
      for (std::size_t k = 0; k < exact.size(); ++k) exact[k].add(std::exchange(sums[k], 0));
    sums += metric_count(loss);
  }
}

std::vector<MetricValue> Evaluator::metrics_of_classes(const Counted& c, Evaluation* details) {
  std::vector<double> counts(c.values.begin(), c.values.begin() + std::ptrdiff_t(c.counts.confusion));
  std::vector<ClassCounts> classes = class_counts(counts, c.task);
  std::vector<double> sums;  // far fewer than the counts if there are many classes
  for (const ClassCounts& one : classes)
    for (const std::int64_t n : {one.right, one.labels, one.predictions}) sums.push_back(double(n));
  s_.compute.collective->all_reduce_scalars(sums);
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = {std::int64_t(sums[3 * i]), std::int64_t(sums[3 * i + 1]), std::int64_t(sums[3 * i + 2])};
  std::vector<MetricValue> out = class_metrics(classes, c.task);
  constexpr std::size_t max_classes = 100;
  if (!details) return out;
  details->classes = std::move(classes);
  if (details->classes.size() > max_classes) return out;
  s_.compute.collective->all_reduce_scalars(counts);
  details->confusion = std::move(counts);
  return out;
}

std::vector<MetricValue> Evaluator::counted_metrics(const Counted& c, Evaluation* details) {
  std::vector<MetricValue> out;
  if (c.counts.confusion > 0) out = metrics_of_classes(c, details);
  if (c.counts.scores == 0) return out;
  const auto of_scores = c.values.subspan(c.counts.confusion, c.counts.scores);
  std::vector<double> scores(of_scores.begin(), of_scores.end());
  s_.world.all_reduce(scores, World::Reduce::sum);  // many: all_reduce_scalars() is for a few
  out.push_back({BestMetric::auc, area_under_roc(scores)});
  return out;
}

std::vector<MetricValue> Evaluator::metrics_of_loss(const Counted& c, Evaluation* details) {
  if (c.values.empty()) return {};
  if (c.task != Task::regression) return counted_metrics(c, details);
  std::vector<double> sums;
  if (s_.strict())
    for (const ExactDouble& sum : regression_sums_[c.loss]) sums.insert(sums.end(), sum.parts.begin(), sum.parts.end());
  else
    for (const std::uint64_t bits : c.values) sums.push_back(std::bit_cast<double>(bits));
  s_.compute.collective->all_reduce_scalars(sums);
  if (s_.strict())
    for (std::size_t k = 0; k < 4; ++k) sums[k] = sums[3 * k] + (sums[3 * k + 1] + sums[3 * k + 2]);
  return regression_metrics(sums, c.targets);
}

// Collective.
void Evaluator::add_metrics(Evaluation& out) {
  const std::vector<std::uint64_t> values = network_.read_metrics();
  if (out.task != Task::several) {
    if (out.task == Task::language && metrics_of(s_.spec).back() == BestMetric::perplexity)
      out.metrics = {{BestMetric::perplexity, std::exp(out.loss)}};
    else
      out.metrics = metrics_of_loss(
          {out.task, counts_of(s_.spec), values, 0, double(out.rows) * double(s_.spec.model.outputs)}, &out);
    return;
  }
  std::span<const std::uint64_t> rest = values;
  for (std::size_t i = 0; i < out.losses.size(); ++i) {
    const Spec& loss = network_.graph().nodes[std::size_t(network_.graph().losses()[i])].spec;
    const auto* pointwise = std::get_if<PointwiseLossSpec>(&loss);
    const auto own = rest.first(std::min(rest.size(), std::size_t(metric_count(loss))));  // tokens have none
    rest = rest.subspan(own.size());
    out.losses[i].metrics = metrics_of_loss({out.losses[i].task, counts_of(loss), own, i,
                                             double(out.rows) * double(pointwise ? pointwise->src.row_count() : 1)},
                                            nullptr);
  }
}

// What has a label, if it is not the sample.
static const char* labelled_positions(const ShardIndex& data) {
  if (!data.y.label_maps() || data.samples_are_views()) return "";
  return data.y.target.rank > 2 ? "voxels" : "pixels";
}

static void require_read(const Session& s, std::int64_t unread) {
  if (double(unread) > s.config.data.skip_limit * double(s.data.valid.rows))
    fail(Exit::data,
         "evaluation: {} of the {} samples of data.valid could not be read, more than data.skip_limit = {:g} of them. "
         "repair the files that the warnings name, or raise data.skip_limit",
         unread, s.data.valid.rows, s.config.data.skip_limit);
}

Evaluation Evaluator::run() {
  const watchdog::PartScope part(watchdog::Part::evaluation);
  std::int64_t unread = 0;
  network_.complete_weights();
  exact_ = {};
  regression_sums_ = {};
  StepState& state = network_.host_state();
  const StepState before = state;
  std::ranges::fill(state.losses, LossSums{});
  state.row_weight = 0;
  network_.write_step(0);
  network_.push_step(0);
  network_.clear_metrics();
  {
    Loader loader(*s_.compute.device, *s_.data.valid_source, s_.data.valid, *s_.batching.valid_order, options_,
                  s_.valid_micro_batches(), &slots_);
    const auto next = [&] {
      const watchdog::WaitScope waits(watchdog::Wait::file);
      return loader.next();
    };
    while (const Batch* batch = next()) {
      unread += batch->skipped;
      forward_.run(*batch);
      if (s_.strict()) add_exactly();
    }
  }
  network_.copy_state_to_host(0);
  const StepState sums = network_.read_state(0);
  state = before;
  Evaluation out = totals(sums, unread);
  add_metrics(out);
  return out;
}

// Collective.
Evaluation Evaluator::totals(const StepState& sums, std::int64_t unread) {
  const std::size_t losses = losses_.value_count() / LossMeans::values_of_loss;
  std::vector<double> totals{double(unread)};
  for (std::size_t i = 0; i < losses; ++i)
    for (const std::uint64_t n : {sums.losses[i].top1, sums.losses[i].top5, sums.losses[i].counted})
      totals.push_back(double(n));
  const std::size_t means_at = totals.size();
  totals.resize(means_at + losses_.value_count());
  losses_.put(sums, s_.strict() ? &exact_ : nullptr, std::span(totals).subspan(means_at));
  s_.compute.collective->all_reduce_scalars(totals);
  const LossMeans::Means means = losses_.means(std::span(totals).subspan(means_at), s_.data.valid.rows);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Evaluation out;
  out.task = task_of(s_.spec);
  out.unread = std::int64_t(totals[0]);
  require_read(s_, out.unread);
  out.loss = means.total;
  if (out.task == Task::several) {
    out.labels = false;
    out.rows = s_.data.valid.rows;
    for (std::size_t i = 0; i < losses; ++i) {
      const Task task = task_of(network_.graph().nodes[std::size_t(network_.graph().losses()[i])].spec);
      const double* of = &totals[1 + 3 * i];
      out.losses.push_back({losses_.names()[i], task, means.each[i], task == Task::regression ? nan : of[0] / of[2],
                            task == Task::regression || task == Task::binary ? nan : of[1] / of[2]});
    }
    return out;
  }
  out.labels = out.task != Task::regression;
  out.positions = labelled_positions(s_.data.valid);
  out.rows = std::int64_t(totals[3]);
  out.top1 = totals[1] / totals[3];
  out.top5 = out.task == Task::binary ? nan : totals[2] / totals[3];
  return out;
}

CheckpointModel find_checkpoint(World& world, const CheckpointChoice& choice) {
  const auto folder = std::filesystem::path(choice.run_dir) / "checkpoints";
  if (choice.which == "best") return CheckpointStore::model(world, CheckpointStore::best(world, folder));
  if (choice.which != "newest") {
    std::string problem;
    std::error_code none;
    if (world.rank() == 0 && !std::filesystem::exists(choice.which, none))
      problem = fmt::format("no checkpoint is called {}. use newest, best or the path of a file", choice.which);
    world.agree(Exit::data, problem);
    return CheckpointStore::model(world, choice.which);
  }
  if (auto found = CheckpointStore::newest_model(world, folder)) return *found;
  fail(Exit::data, "no intact checkpoint in {}. train first, or pass --checkpoint FILE", folder.string());
}

ConfigFile config_of_checkpoint(World& world, const CheckpointChoice& choice) {
  const CheckpointModel found = find_checkpoint(world, choice);
  return {found.path.string(), found.config};
}

Exit evaluate(World& world, const RunConfig& config, const CheckpointChoice& choice) {
  const CheckpointModel model = find_checkpoint(world, choice);
  require_same_function(model, config);
  Session s(world, config, Session::Use::evaluate, model.record ? &*model.record : nullptr);
  Network network(s.compute, s.spec, plan_within_memory(s));
  CheckpointStore store(world, s.compute, model.path.parent_path(), 1);
  const RunState run = choice.which == "newest" ? store.load_newest(network).value()
                                                : load_model(world, s.compute, s.spec, network, model);
  const Evaluation result = Evaluator(s, network).run();
  if (world.rank() == 0) {
    std::printf("step %lld: validation %s\n", (long long)run.step, result.str().c_str());
    constexpr std::size_t max_table_rows = 20;
    if (!result.classes.empty() && result.classes.size() <= max_table_rows)
      std::fputs(class_table(result.classes, result.task, s.data.reference().classes.names).c_str(), stdout);
    std::fflush(stdout);
  }
  return Exit::ok;
}

}  // namespace millrace
