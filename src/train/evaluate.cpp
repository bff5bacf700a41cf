#include "train/evaluate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/train/commands.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/load_weights.hpp"
#include "train/logging/evaluation_file.hpp"
#include "train/resume.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

Evaluator::Evaluator(Session& s, Network& network)
    : s_(s),
      network_(network),
      options_(s.loader_options()),
      slots_(*s.compute.device, s.data.valid, options_.max_rows, std::size_t(options_.device_slots)),
      losses_(graph_of(s.spec, 1, Mode::infer), s.spec.model.own_losses),
      sums_(s, network),
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

// What has a label, if it is not the sample.
static const char* labelled_positions(const ShardIndex& data) {
  if (!data.y.label_maps() || data.samples_are_views()) return "";
  return data.y.target.rank > 2 ? "voxels" : "pixels";
}

static void require_read(const Session& s, std::int64_t unread) {
  if (double(unread) > s.config.data.skip_limit * double(s.data.valid.selected_rows()))
    fail(Exit::data,
         "evaluation: {} of the {} samples of data.valid could not be read, more than data.skip_limit = {:g} of them. "
         "repair the files that the warnings name, or raise data.skip_limit",
         unread, s.data.valid.selected_rows(), s.config.data.skip_limit);
}

Evaluation Evaluator::run() {
  const watchdog::PartScope part(watchdog::Part::evaluation);
  std::int64_t unread = 0;
  network_.complete_weights();
  exact_ = {};
  StepState& state = network_.host_state();
  const StepState before = state;
  std::ranges::fill(state.losses, LossSums{});
  state.row_weight = 0;
  network_.write_step(0);
  network_.push_step(0);
  sums_.begin();
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
      if (s_.strict()) exact_.take(network_.device_state());
      sums_.after_micro_batch();
    }
  }
  network_.copy_state_to_host(0);
  const StepState sums = network_.read_state(0);
  state = before;
  Evaluation out = totals(sums, unread);
  sums_.add_metrics(out);
  out.class_names = s_.data.reference().classes.names;
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
  const LossMeans::Means means = losses_.means(std::span(totals).subspan(means_at), s_.data.valid.selected_rows());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Evaluation out;
  out.task = task_of(s_.spec);
  out.unread = std::int64_t(totals[0]);
  require_read(s_, out.unread);
  out.loss = means.total;
  if (out.task == Task::several) {
    out.labels = false;
    out.rows = s_.data.valid.selected_rows();
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

namespace {

// Where `millrace eval` writes the result; "": nowhere.
std::filesystem::path evaluation_path(const CheckpointChoice& choice, const std::string& output) {
  const bool of_run = choice.which == "newest" || choice.which == "best";
  if (!output.empty() || choice.run_dir.empty() || !of_run) return output;
  return std::filesystem::path(choice.run_dir) / evaluation_file_name;
}

void print_evaluation(std::int64_t step, const Evaluation& result) {
  constexpr std::size_t max_table_rows = 20;
  std::string text = fmt::format("step {}: validation {}\n", step, result.str());
  if (!result.classes.empty() && result.classes.size() <= max_table_rows)
    text += class_table(result.classes, result.task, result.class_names);
  if (!result.outputs.empty() && result.outputs.size() <= max_table_rows) text += output_table(result.outputs);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

Exit evaluate(World& world, const RunConfig& config, const CheckpointChoice& choice, const std::string& output) {
  const std::filesystem::path path = evaluation_path(choice, output);
  const auto on_root = [&](const auto& work) {
    const watchdog::WaitScope waits(watchdog::Wait::file);
    const std::string problem = world.rank() == 0 && !path.empty() ? message_of(work) : "";
    if (!output.empty()) return world.agree(Exit::data, problem);
    if (!problem.empty()) log::warn(fmt::format("the evaluation is only printed: {}", problem));
  };
  const CheckpointModel model = find_checkpoint(world, choice);
  on_root([&] { check_evaluation_path(path); });
  require_same_function(model, config);
  Session s(world, config, Session::Use::evaluate, model.record ? &*model.record : nullptr);
  Network network(s.compute, s.spec, plan_within_memory(s));
  CheckpointStore store(world, s.compute, model.path.parent_path(), 1);
  const RunState run = choice.which == "newest" ? store.load_newest(network).value()
                                                : load_model(world, s.compute, s.spec, network, model);
  const Evaluation result = Evaluator(s, network).run();
  if (world.rank() == 0) print_evaluation(run.step, result);
  const bool part = s.data.valid.selection != nullptr;
  on_root([&] {
    write_evaluation(path,
                     {run.step, model.path.string(), part ? name_of(config.data.eval_split) : "",
                      part ? config.data.train : config.data.valid},
                     result);
  });
  return Exit::ok;
}

}  // namespace millrace
