// The parts of a training run other than its steps: checkpoints, evaluations, unreadable samples, the account, and the
// end of the run.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/advisor/rules/straggler.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/train/session/resolved_config.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/checkpoint/replicas.hpp"
#include "train/checkpoint/run_state.hpp"
#include "train/overflow.hpp"
#include "train/trainer_impl.hpp"

namespace millrace {

void Trainer::Impl::checkpoint(bool needed) {
  const Timeline::Scope scope(timeline, Phase::checkpoint);
  const watchdog::PartScope part(watchdog::Part::checkpoint);
  if (store.saving()) saved(store.finish());
  const auto began = std::chrono::steady_clock::now();
  if (run_logger) run_logger->before_checkpoint();
  run.state = network.read_state(int((run.step + 1) % 2));  // the parity of step number run.step, counted from 1
  run.provenance = s.provenance();
  if (run.model.empty()) run.model = to_json(s.model_record());  // resumed from a checkpoint of an older version
  run.provenance["shares"] = s.batching.load_balancer->str(run.step);
  run.config = s.config.text;
  save_needed = needed;
  saved_step = run.step;
  std::string problem;
  try {
    problem = store.begin(network, run);
  } catch (const Error& e) {
    finish("replicas_differ", e.code());
    throw;
  }
  clock.began(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), began);
  if (!problem.empty()) saved(problem);
  trace_phase(Phase::checkpoint, began);
}

void Trainer::Impl::saved(const std::string& problem) {
  unsaved = problem;
  if (const std::string chosen = clock.ended(); !chosen.empty()) progress.line(chosen);
  if (unsaved.empty()) account_builder.checkpoint(save_needed);
  if (unsaved.empty() && run_logger) run_logger->checkpoint(saved_step);
  if (!unsaved.empty() && saved_step < s.total_steps())
    log::warn(fmt::format("checkpoint of step {} was not written ({}). free disk space", saved_step, unsaved));
}

void Trainer::Impl::fail_with_differing_replicas() {
  const std::string where = differing_replicas(s.world, *s.compute.device, checkpoint_tensors(network));
  const auto kept = CheckpointStore::list(dir / "checkpoints");
  finish("replicas_differ", Exit::comm);
  fail(Exit::comm,
       "step {}: the gradient norm differs between ranks{}. a processor, a memory or the network is faulty: leave its "
       "host out and start again; {}",
       run.step, where.empty() ? "" : fmt::format(", and {}", where),
       kept.empty() ? std::string("no checkpoint has been written yet")
                    : "the last good checkpoint is " + kept.back().string());
}

bool Trainer::Impl::evaluates_after(std::int64_t steps) const {
  if (!s.data.has_valid) return false;
  const std::int64_t every = s.config.train.evaluate_every;
  return s.batching.epochs.step_in_epoch(steps) == 0 || steps == s.total_steps() || (every > 0 && steps % every == 0);
}

bool Trainer::Impl::out_of_patience() const {
  const std::int64_t patience = s.config.train.patience;
  return patience > 0 && run.evaluations_since_best >= patience &&
         (run.best_metric.empty() || run.best_metric == value_text(s.config, "checkpoint.best"));
}

std::string Trainer::Impl::describe_patience() const {
  if (run.best_metric.empty())
    return fmt::format("the validation results of {} evaluations were not finite (train.patience)",
                       run.evaluations_since_best);
  return fmt::format(
      "the validation {} has not improved for {} evaluations (train.patience). the best was {:.4f} at "
      "step {}",
      run.best_metric, run.evaluations_since_best, run.best_value, run.best_step);
}

void Trainer::Impl::lower_rate_on_plateau(const std::string& metric, double value) {
  const OptimOptions& o = s.config.optim;
  if (o.schedule != LrSchedule::plateau || !run.plateau.evaluated(o, metric, value)) return;
  progress.line(
      fmt::format("the validation {} has not improved for {} evaluations (optim.patience): learning rate x {:g}",
                  metric, o.patience + 1, o.gamma));
}

bool Trainer::Impl::evaluate_now() {
  const Timeline::Scope scope(timeline, Phase::evaluation);
  const auto began = std::chrono::steady_clock::now();
  network.swap_averages();
  validation = evaluator->run();
  network.swap_averages();
  trace_phase(Phase::evaluation, began);
  account_builder.evaluation();
  run.valid_loss = validation->loss;
  run.valid_accuracy = validation->labels ? validation->top1 : -1;
  run.valid_step = run.step;
  if (run_logger) run_logger->evaluation(run, *validation);
  progress.line(fmt::format("epoch {} (step {}): validation {}", run.epoch_from_1(), run.step, validation->str()));
  const std::string metric = value_text(s.config, "checkpoint.best");
  const double value = validation->value(s.config.checkpoint.best);
  lower_rate_on_plateau(metric, value);
  const bool first = run.best_step < 0 || run.best_metric != metric;
  if (!std::isfinite(value) ||
      !(first || (lower_is_better(metric) ? value < run.best_value : value > run.best_value))) {
    ++run.evaluations_since_best;
    return false;
  }
  run.evaluations_since_best = 0;
  run.best_metric = metric;
  run.best_value = value;
  run.best_step = run.step;
  return true;
}

void Trainer::Impl::count_unread() {
  if (s.batching.epochs.step_in_epoch(run.step - 1) == 0) run.unread_in_epoch = 0;
  run.unread_samples += last.unread_samples;
  run.unread_in_epoch += last.unread_samples;
  const std::int64_t rows = s.data.train.selected_rows();
  if (double(run.unread_in_epoch) > s.config.data.skip_limit * double(rows)) {
    finish("unread", Exit::data);
    fail(Exit::data,
         "step {}: {} of the {} samples of epoch {} could not be read, more than data.skip_limit = {:g} of them. "
         "repair the files that the warnings and summary.json name, or raise data.skip_limit",
         run.step, run.unread_in_epoch, rows, last.epoch + 1, s.config.data.skip_limit);
  }
  if (run.step_in_epoch == 0 && run.unread_in_epoch > 0)
    progress.line(fmt::format("epoch {}: {} of {} samples could not be read and were skipped (data.on_error)",
                              last.epoch + 1, run.unread_in_epoch, rows));
}

void Trainer::Impl::diverged() {
  const auto kept = CheckpointStore::list(dir / "checkpoints");
  const std::string where = describe_gradient(s.world, *s.compute.device, network);
  const std::string sample = describe_samples(s, run.step - 1);
  finish("diverged", Exit::diverged);
  warn_of_packed_targets(s.world, s.data);
  if (!sample.empty())
    fail(Exit::diverged, "step {}: the loss or its gradient is not finite (loss {:g}): {}. fix the data", run.step,
         last.loss, sample);
  fail(Exit::diverged,
       "step {}: the loss or its gradient is not finite (loss {:g}, gradient norm {:g}; {}). lower optim.lr, lengthen "
       "optim.warmup or set optim.clip; {}",
       run.step, last.loss, last.grad_norm, where,
       kept.empty() ? std::string("no checkpoint has been written yet")
                    : "the last good checkpoint is " + kept.back().string());
}

Account Trainer::Impl::account() {
  const LoaderStats read = loader ? loader->stats() : LoaderStats{};
  RankAccount mine =
      runner ? account_builder.stats(network, read, runner->timer().max_timestamps(), runner->reducer().milestones())
             : account_builder.stats(network, read, 0, {});
  mine.wall_seconds = timeline.wall_seconds();
  mine.seconds = timeline.seconds();
  mine.faults = s.data.train_source->faults();
  mine.staging = s.data.train_source->staging();
  mine.samples = std::uint64_t(trained_samples);
  mine.device = device_monitor.device_time();
  mine.health = device_monitor.health();
  Account out;
  for (const std::string& text : s.world.gather(Account{{mine}}.json()))
    out.ranks.push_back(RankAccount::from_json(text));
  return out;
}

void Trainer::Impl::finish(const std::string& status, Exit code) {
  if (store.saving()) saved(store.finish());
  if (tracer) tracer->end();
  const Account all = account();
  metrics = bottleneck_metrics_of(all, resolved_config_of(s));
  const auto graphs = s.world.gather_to_root(s.compute.device->graphs());
  if (s.world.rank() != 0) return;
  Summary summary{start, status, run, validation, trained_steps, trained_samples};
  if (train_seconds > 0) summary.samples_per_second = double(trained_samples) / train_seconds;
  summary.seconds = timeline.wall_seconds();
  summary.final_loss = last.loss;
  summary.light = speed_of_light.stats();
  const auto other = std::find_if(graphs.begin(), graphs.end(), [](const std::string& g) { return g != "on"; });
  summary.cuda_graph = other == graphs.end() ? graphs.front() : *other;
  if (run_logger) run_logger->ended(code);
  try {
    write_summary(dir, summary, all, metrics);
  } catch (const Error& e) {
    log::warn(e.what());
  }
  if (code == Exit::diverged) return;  // the error follows; where the time went is of no interest
  if (!s.config.account.probe && trained_steps > 0) progress.line(verdict(metrics));
  progress.line(all.table() + straggler_line(all.ranks));
  if (trained_steps > 0)
    progress.line(fmt::format("{} at step {}: {} samples/s while training{}", status, run.step,
                              format_count(summary.samples_per_second), light_text(summary.light.share)));
  if (summary.cuda_graph.size() > 3) progress.line("CUDA graphs: " + summary.cuda_graph);
  if (validation) progress.line(fmt::format("validation {}", validation->str()));
}

void Trainer::Impl::report_ending(Exit result) {
  if (unsaved.empty()) {
    finish(result == Exit::ok ? "finished" : "stopped", result);
    if (result == Exit::stopped) {
      // The ranks do not notice it at the same moment: the first one to do so asks all to stop.
      std::string reason = stop.reason();
      for (const std::string& other : s.world.gather_to_root(reason))
        if (reason.empty()) reason = other;
      progress.line(
          fmt::format("stopped early ({}) with a checkpoint at step {}; start again to resume", reason, run.step));
    }
    return;
  }
  finish("unsaved", Exit::data);
  const auto kept = CheckpointStore::list(dir / "checkpoints");
  fail(Exit::data,
       "the final checkpoint of step {} was not written ({}). free disk space and start again: the run resumes from {}",
       run.step, unsaved, kept.empty() ? std::string("its beginning") : kept.back().string());
}

void Trainer::Impl::trace_phase(Phase phase, std::chrono::steady_clock::time_point began) {
  const auto seconds = [](auto t) { return std::chrono::duration<double>(t.time_since_epoch()).count(); };
  if (tracer) tracer->phase(phase, seconds(began), seconds(std::chrono::steady_clock::now()));
}

}  // namespace millrace
