#include "train/evaluate.hpp"

#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

#include "millrace/base/error.hpp"
#include "millrace/train/commands.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/resume.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

Evaluator::Evaluator(Session& s, Network& network)
    : s_(s),
      network_(network),
      options_(s.loader_options()),
      slots_(*s.compute.device, s.data.valid, options_.max_rows, std::size_t(options_.device_slots)) {
  // Each evaluation creates a loader, and on a GPU its whole ring is pinned. So the ring is fixed to 4 slots instead of
  // the automatic size.
  if (options_.prefetch == 0 && !s.compute.device->shares_host_memory()) options_.prefetch = 4;
}

void Evaluator::forward(const Batch& batch) {
  Program& program = network_.eval_program(batch.item.rows);
  const auto work = [&program, x = batch.x, y = batch.y, ids = batch.ids] { program.forward(x, y, ids, true); };
  if (!batch.slot) return work();  // the batch lies in host memory, at changing addresses: it cannot be captured
  auto& captured = captured_[{batch.item.rows, batch.slot}];
  if (!captured) captured = s_.compute.device->capture(fmt::format("evaluation of {} rows", batch.item.rows), work);
  captured->run();
}

// With run.reproducible = strict, after each micro-batch: moves the sums of the device, which shares the host's memory.
void Evaluator::add_exactly() {
  StepState& state = network_.device_state();
  loss_.add(state.loss_sum);
  loss_weight_.add(state.loss_weight);
  state.loss_sum = state.loss_weight = 0;
  if (task_of(s_.spec) != Task::regression) return;
  auto* sums = static_cast<double*>(network_.device_metrics());
  for (std::size_t k = 0; k < regression_sums_.size(); ++k) {
    regression_sums_[k].add(sums[k]);
    sums[k] = 0;
  }
}

void Evaluator::add_class_metrics(Evaluation& out, std::vector<double> counts) {
  out.classes = class_counts(counts, out.task);
  std::vector<double> sums;  // far fewer than the counts if there are many classes
  for (const ClassCounts& c : out.classes)
    for (const std::int64_t n : {c.right, c.labels, c.predictions}) sums.push_back(double(n));
  s_.compute.collective->all_reduce_scalars(sums);
  for (std::size_t i = 0; i < out.classes.size(); ++i)
    out.classes[i] = {std::int64_t(sums[3 * i]), std::int64_t(sums[3 * i + 1]), std::int64_t(sums[3 * i + 2])};
  out.metrics = class_metrics(out.classes, out.task);
  constexpr std::size_t max_classes = 100;
  if (out.classes.size() > max_classes) return;
  s_.compute.collective->all_reduce_scalars(counts);
  out.confusion = std::move(counts);
}

void Evaluator::add_counted_metrics(Evaluation& out, std::vector<double> values) {
  const EvaluationCounts counts = counts_of(s_.spec);
  std::vector<double> scores(values.begin() + std::ptrdiff_t(counts.confusion),
                             values.begin() + std::ptrdiff_t(counts.confusion + counts.scores));
  values.resize(counts.confusion);
  if (!values.empty()) add_class_metrics(out, std::move(values));
  if (scores.empty()) return;
  s_.world.all_reduce(scores, World::Reduce::sum);  // many: all_reduce_scalars() is for a few
  out.metrics.push_back({BestMetric::auc, area_under_roc(scores)});
}

// Collective.
void Evaluator::add_metrics(Evaluation& out) {
  if (out.task == Task::language && metrics_of(s_.spec).back() == BestMetric::perplexity)
    out.metrics = {{BestMetric::perplexity, std::exp(out.loss)}};
  std::vector<double> values;
  if (out.task == Task::regression && s_.strict())
    for (const ExactDouble& sum : regression_sums_) values.insert(values.end(), sum.parts.begin(), sum.parts.end());
  else
    for (const std::uint64_t bits : network_.read_metrics())
      values.push_back(out.task == Task::regression ? std::bit_cast<double>(bits) : double(bits));
  if (values.empty()) return;
  if (out.task != Task::regression) return add_counted_metrics(out, std::move(values));
  s_.compute.collective->all_reduce_scalars(values);
  if (s_.strict())
    for (std::size_t k = 0; k < 4; ++k) values[k] = values[3 * k] + (values[3 * k + 1] + values[3 * k + 2]);
  out.metrics = regression_metrics(values, double(out.rows) * double(s_.spec.model.outputs));
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
  const Sampler& order = *s_.batching.valid_order;
  std::int64_t step = 0;
  std::size_t index = 0;
  std::vector<MicroBatch> share;
  std::int64_t unread = 0;
  const auto items = [&]() -> std::optional<MicroBatch> {
    while (index == share.size()) {
      if (step == order.steps_per_epoch()) return std::nullopt;
      share = order.share(0, step++, s_.world.rank(), s_.world.size());
      index = 0;
    }
    return share[index++];
  };
  network_.complete_weights();
  loss_ = loss_weight_ = {};
  regression_sums_ = {};
  StepState& state = network_.host_state();
  const StepState before = state;
  state.loss_sum = state.loss_weight = 0;
  state.top1 = state.top5 = state.counted = 0;
  state.row_weight = 0;
  network_.write_step(0);
  network_.push_step(0);
  network_.clear_metrics();
  {
    Loader loader(*s_.compute.device, *s_.data.valid_source, s_.data.valid, order, options_, items, &slots_);
    const auto next = [&] {
      const watchdog::WaitScope waits(watchdog::Wait::file);
      return loader.next();
    };
    while (const Batch* batch = next()) {
      unread += batch->skipped;
      forward(*batch);
      if (s_.strict()) add_exactly();
    }
  }
  network_.copy_state_to_host(0);
  const StepState sums = network_.read_state(0);
  state = before;
  const std::array<double, 3> loss = s_.strict() ? loss_.parts : std::array{sums.loss_sum, 0.0, 0.0},
                              weight = s_.strict() ? loss_weight_.parts : std::array{sums.loss_weight, 0.0, 0.0};
  double totals[] = {loss[0],        double(sums.top1), double(sums.top5), double(sums.counted),
                     double(unread), loss[1],           loss[2],           weight[0],
                     weight[1],      weight[2]};
  s_.compute.collective->all_reduce_scalars(totals);
  Evaluation out;
  out.task = task_of(s_.spec);
  out.labels = out.task != Task::regression;
  out.positions = labelled_positions(s_.data.valid);
  out.rows = std::int64_t(totals[3]);
  out.unread = std::int64_t(totals[4]);
  require_read(s_, out.unread);
  out.loss = (totals[0] + (totals[5] + totals[6])) / (totals[7] + (totals[8] + totals[9]));
  out.top1 = totals[1] / totals[3];
  out.top5 = out.task == Task::binary ? std::numeric_limits<double>::quiet_NaN() : totals[2] / totals[3];
  add_metrics(out);
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
  const RunState run = choice.which == "newest" ? store.load_newest(network).value() : store.load(network, model.path);
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
