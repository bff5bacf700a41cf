#include "train/trainer.hpp"

#include <cmath>
#include <filesystem>

#include "millrace/advisor/rules/straggler.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/train/session/resolved_config.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/step.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/evaluate.hpp"
#include "train/logging/account_builder.hpp"
#include "train/logging/device_monitor.hpp"
#include "train/logging/progress.hpp"
#include "train/logging/run_files.hpp"
#include "train/logging/run_logger.hpp"
#include "train/logging/tracer.hpp"
#include "train/overflow.hpp"
#include "train/resume.hpp"
#include "train/session/evaluation.hpp"
#include "train/stop_request.hpp"

namespace millrace {
namespace {

constexpr std::int64_t many_overflows = 8;  // a scale that starts too high comes down in fewer

}  // namespace

struct Trainer::Impl {
  Timeline timeline;
  Session s;
  std::filesystem::path dir;
  DeviceMonitor device_monitor;
  AccountBuilder account_builder;
  Network network;
  std::optional<Schedule> schedule;
  CheckpointInterval interval;
  CheckpointStore store;
  StopRequest stop;
  Progress progress;
  Launch start;             // known to rank 0
  RunState run;             // as of the last collected step
  std::int64_t issued = 0;  // steps enqueued; run.step of them are collected
  const int lag;            // steps that may be in flight when the host looks
  std::unique_ptr<Loader> loader;
  std::unique_ptr<StepRunner> runner;
  std::optional<Evaluator> evaluator;
  std::optional<RunLogger> run_logger;  // of rank 0
  std::optional<Tracer> tracer;
  StepMetrics last;
  std::optional<Evaluation> validation;  // the last
  double train_seconds = 0, checkpoint_seconds = 0;
  std::string unsaved;  // why the newest checkpoint could not be written, or empty
  std::int64_t trained_samples = 0, trained_steps = 0, overflows = 0;  // overflows: steps skipped one after the other
  BottleneckMetrics evidence;                                          // at the end
  std::chrono::steady_clock::time_point last_checkpoint = std::chrono::steady_clock::now();

  Impl(World& world, const RunConfig& config, Timeline::Clock::time_point begun)
      : timeline(begun),
        s(world, config, Session::Use::train),
        dir(config.run.dir),
        device_monitor(s),
        account_builder(s),
        network(s.compute, s.spec, plan_within_memory(s)),
        interval(CheckpointInterval::parse(config.checkpoint.every)),
        store(world, s.compute, dir / "checkpoints", config.checkpoint.keep),
        stop(config.run, dir, world.rank() == 0),
        progress(world.rank() == 0, on_terminal(), config.log.every),
        lag(steps_in_flight(*s.compute.device)) {
    init_loss_scale(s, network);
    device_monitor.set_roofline(network, s.spec.train_rows);
    if (config.train.balance != "even" && config.train.micro_batch == 0 && world.size() > 1 &&
        network.layout().stats_count > 0)
      log::warn(cat("train.balance: batch norms see micro-batches of ", s.batching.micro_batch,
                    " samples, that shares can be made of. set train.micro_batch to choose"));
    if (s.data.has_valid) evaluator.emplace(s, network);
  }

  void start_feeding() {
    loader = std::make_unique<Loader>(*s.compute.device, *s.data.train_source, s.data.train, *s.batching.train_order,
                                      s.step_loader_options(), s.micro_batches(issued, s.total_steps()));
    runner = std::make_unique<StepRunner>(s, network, *loader);
    schedule.emplace(s.config.optim, s.batching.epochs.steps_per_epoch(), s.batching.epochs.even(s.total_steps()),
                     s.batching.global_batch);
  }

  void enqueue_one() {
    if (tracer) tracer->before_enqueue(issued);
    runner->enqueue(issued, schedule->learning_rate(s.batching.epochs.even(issued)));
    ++issued;
  }

  void resume() {
    if (s.config.run.resume == Resume::never) {
      if (s.world.rank() == 0) remove_old_run(dir);  // or a later resume would find the old run's
      s.world.barrier();
      return;
    }
    const auto found = store.load_newest(network);
    if (!found && s.config.run.resume == Resume::must)
      fail(Exit::data, "run.resume = must, but there is no checkpoint in ", (dir / "checkpoints").string());
    if (!found) {
      if (s.world.rank() == 0) remove_old_run(dir);  // one that left no checkpoint
      s.world.barrier();
      return;
    }
    run = *found;
    resume_from(run, s);
    run.origin = s.batching.epochs.origin;
    StepState& state = network.host_state();
    state.loss_scale = state.scale_on ? run.state.loss_scale : 1;
    state.clean_steps = run.state.clean_steps;
    state.applied = run.state.applied;
    network.push_state();
    const auto shares = run.provenance.find("shares");
    s.batching.load_balancer->resume_split(run.step, shares == run.provenance.end() ? "" : shares->second);
    issued = run.step;
    progress.line(cat("resumed at step ", run.step, " of ", s.total_steps(), " (epoch ", run.epoch, ", ", run.samples,
                      " samples)"));
  }

  void collect_one(bool* stopping, bool* checkpoint) {
    const std::int64_t step = run.step;
    const bool due =
        interval.seconds > 0 && s.world.rank() == 0 &&
        std::chrono::duration<double>(std::chrono::steady_clock::now() - last_checkpoint).count() >= interval.seconds;
    const StepResult result = runner->collect(step, stop.requested(last.seconds, checkpoint_seconds), due);
    device_monitor.after_collect();
    last = result.metrics;
    for (int p = 0; p < phase_count; ++p)
      if (Phase(p) != Phase::other) timeline.add(Phase(p), last.phase_seconds[std::size_t(p)]);
    train_seconds += last.seconds;
    trained_samples += last.samples - run.samples, ++trained_steps;
    run.step = result.step, run.samples = last.samples;
    run.epoch = s.batching.epochs.epoch(run.step), run.step_in_epoch = s.batching.epochs.step_in_epoch(run.step);
    account_builder.step(last, runner->timer());
    if (const std::string moved = s.batching.load_balancer->collected(last, runner->timer().timing()); !moved.empty())
      progress.line(moved);
    if (tracer) tracer->collected(step, *runner);
    if (run_logger) run_logger->step(last), run_logger->shares(*s.batching.load_balancer);
    progress.step(last, s.total_steps());
    overflows = result.found_inf ? overflows + 1 : 0;
    if (overflows == many_overflows && !result.at_floor)
      log::warn(cat("overflow in ", overflows,
                    " steps one after the other: ", describe_gradient(s.world, *s.compute.device, network),
                    ". lower optim.lr or set run.precision = bf16"));
    count_unread();
    if ((result.found_inf || (result.counted && !std::isfinite(last.loss))) && result.at_floor) diverged();
    *stopping = *stopping || result.stop;
    *checkpoint = *checkpoint || result.checkpoint;
  }

  // The same on all ranks, whichever could not read.
  void count_unread() {
    if (s.batching.epochs.step_in_epoch(run.step - 1) == 0) run.unread_in_epoch = 0;
    run.unread_samples += last.unread_samples, run.unread_in_epoch += last.unread_samples;
    const std::int64_t rows = s.data.train.rows;
    if (double(run.unread_in_epoch) > s.config.data.skip_limit * double(rows)) {
      finish("unread", Exit::data);
      fail(Exit::data, "step ", run.step, ": ", run.unread_in_epoch, " of the ", rows, " samples of epoch ", last.epoch,
           " could not be read, more than data.skip_limit = ", s.config.data.skip_limit,
           " of them. mend the files that the warnings and summary.json name, or raise data.skip_limit");
    }
    if (run.step_in_epoch == 0 && run.unread_in_epoch > 0)
      progress.line(cat("epoch ", last.epoch, ": ", run.unread_in_epoch, " of ", rows,
                        " samples could not be read and were skipped (data.on_error)"));
  }

  [[noreturn]] void diverged() {
    const auto kept = CheckpointStore::list(dir / "checkpoints");
    const std::string where = describe_gradient(s.world, *s.compute.device, network);
    const std::string sample = describe_samples(s, run.step - 1);
    finish("diverged", Exit::diverged);
    if (!sample.empty())
      fail(Exit::diverged, "step ", run.step, ": the loss or its gradient is not finite (loss ", last.loss,
           "): ", sample, ". mend the data");
    fail(Exit::diverged, "step ", run.step, ": the loss or its gradient is not finite (loss ", last.loss,
         ", gradient norm ", last.grad_norm, "; ", where,
         "). lower optim.lr, lengthen optim.warmup or set optim.clip; ",
         kept.empty() ? std::string("no checkpoint was written yet")
                      : "the last good checkpoint is " + kept.back().string());
  }

  void checkpoint(bool needed) {
    const Timeline::Scope scope(timeline, Phase::checkpoint);
    const auto began = std::chrono::steady_clock::now();
    if (run_logger) run_logger->before_checkpoint();
    run.state = network.read_state(int((run.step + 1) % 2));  // slot of step number run.step, counted from 1
    run.provenance = s.provenance();
    run.provenance["shares"] = s.batching.load_balancer->str(run.step);
    run.config = s.config.text;
    unsaved = store.save(network, run);
    if (unsaved.empty()) account_builder.checkpoint(needed);
    if (unsaved.empty() && run_logger) run_logger->checkpoint(run.step);
    last_checkpoint = std::chrono::steady_clock::now();
    checkpoint_seconds = std::chrono::duration<double>(last_checkpoint - began).count();
    trace_phase(Phase::checkpoint, began);
    if (!unsaved.empty() && run.step < s.total_steps())
      log::warn(cat("checkpoint of step ", run.step, " was not written (", unsaved, "). free the disk"));
  }

  void trace_phase(Phase phase, std::chrono::steady_clock::time_point began) {
    const auto seconds = [](auto t) { return std::chrono::duration<double>(t.time_since_epoch()).count(); };
    if (tracer) tracer->phase(phase, seconds(began), seconds(std::chrono::steady_clock::now()));
  }

  // True when no weights so far were better.
  bool evaluate_now() {
    const Timeline::Scope scope(timeline, Phase::evaluation);
    const auto began = std::chrono::steady_clock::now();
    validation = evaluator->run();
    trace_phase(Phase::evaluation, began);
    account_builder.evaluation();
    run.valid_loss = validation->loss, run.valid_accuracy = validation->labels ? validation->top1 : -1;
    run.valid_step = run.step;
    if (run_logger) run_logger->evaluation(run, *validation);
    progress.line(cat("epoch ", run.epoch, " (step ", run.step, "): validation ", validation->str()));
    if (run.valid_accuracy <= run.best_accuracy) return false;
    run.best_accuracy = run.valid_accuracy, run.best_step = run.step;
    return true;
  }

  bool checkpoint_due(std::int64_t after_step) const {
    if (interval.steps > 0) return after_step % interval.steps == 0;
    if (interval.epochs <= 0) return false;
    const double per = double(s.batching.epochs.steps_per_epoch()) * interval.epochs,
                 done = double(s.batching.epochs.even(after_step));
    return std::floor(done / per) > std::floor((done - 1) / per);
  }

  Account account() {
    const LoaderStats read = loader ? loader->stats() : LoaderStats{};
    RankAccount mine =
        runner ? account_builder.stats(network, read, runner->timer().max_timestamps(), runner->reducer().milestones())
               : account_builder.stats(network, read, 0, {});
    mine.wall_seconds = timeline.wall_seconds();
    mine.seconds = timeline.seconds();
    mine.faults = s.data.train_source->faults();
    mine.staging = s.data.train_source->staging();
    mine.samples = std::uint64_t(trained_samples);
    mine.device = device_monitor.device_time(), mine.health = device_monitor.health();
    Account out;
    for (const std::string& text : s.world.gather(Account{{mine}}.json()))
      out.ranks.push_back(RankAccount::from_json(text));
    return out;
  }

  void finish(const std::string& status, Exit code) {
    if (tracer) tracer->end();
    const Account all = account();
    evidence = bottleneck_metrics_of(all, resolved_config_of(s));
    if (s.world.rank() != 0) return;
    Summary summary{start, status, run, validation, trained_steps, trained_samples};
    if (train_seconds > 0) summary.samples_per_second = double(trained_samples) / train_seconds;
    summary.seconds = timeline.wall_seconds(), summary.final_loss = last.loss;
    if (run_logger) run_logger->ended(code);
    try {
      write_summary(dir, summary, all, evidence);
    } catch (const Error& e) {
      log::warn(e.what());
    }
    if (!s.config.account.probe && trained_steps > 0) progress.line(verdict(evidence));
    progress.line(all.table() + straggler_line(all.ranks));
    if (trained_steps > 0)
      progress.line(cat(status, " at step ", run.step, ": ", format_count(summary.samples_per_second),
                        " samples/s while training"));
    if (validation) progress.line(cat("validation ", validation->str()));
  }

  Exit loop() {
    bool stopping = false;
    const std::int64_t total = s.total_steps();
    while (run.step < total && !stopping) {
      bool requested = false;
      timeline.enter(Phase::other);
      // A boundary is a step after which the host must look: an epoch's end, a checkpoint by count, a trace's end.
      device_monitor.before_enqueue();
      enqueue_one();
      const bool boundary = s.batching.epochs.step_in_epoch(issued) == 0 || issued == total || checkpoint_due(issued) ||
                            device_monitor.window_ends();
      while (run.step < issued - (boundary || stopping ? 0 : lag)) collect_one(&stopping, &requested);
      if (stopping || requested)
        while (run.step < issued) collect_one(&stopping, &requested);
      if (run.step < issued) continue;
      const bool last_step = run.step == total;
      bool best = false;
      if (s.data.has_valid && (run.step_in_epoch == 0 || last_step)) best = evaluate_now() && !interval.never();
      const bool needed = best || stopping || last_step;
      if (checkpoint_due(run.step) || requested || needed) checkpoint(needed);
    }
    return run.step < total ? Exit::stopped : Exit::ok;
  }

  Exit run_all() {
    const RunFolderLock lock(s.world, dir);
    resume();
    start = write_run_json(s, dir, run.step);
    if (s.world.rank() == 0) run_logger.emplace(s, run, timeline), run_logger->shares(*s.batching.load_balancer);
    start_feeding();
    tracer.emplace(s, *loader, dir / "trace.json", run.step);
    progress.line(describe_run(s, network));
    const Exit result = loop();
    timeline.enter(Phase::other);
    if (result == Exit::ok && !validation && s.data.has_valid) evaluate_now();
    finish(!unsaved.empty()     ? "unsaved"
           : result == Exit::ok ? "finished"
                                : "stopped",
           !unsaved.empty() ? Exit::data : result);
    if (!unsaved.empty()) {
      const auto kept = CheckpointStore::list(dir / "checkpoints");
      fail(Exit::data, "the checkpoint of step ", run.step, ", the last, was not written (", unsaved,
           "). free the disk and start again: the run goes on from ",
           kept.empty() ? std::string("its beginning") : kept.back().string());
    }
    if (result == Exit::stopped)
      progress.line(cat("stopped early (", stop.reason().empty() ? std::string("asked by another rank") : stop.reason(),
                        ") with a checkpoint at step ", run.step, "; start again to go on"));
    return result;
  }
};

Trainer::Trainer(World& world, const RunConfig& config, Timeline::Clock::time_point begun)
    : impl_(std::make_unique<Impl>(world, config, begun)) {}
Trainer::~Trainer() = default;
Exit Trainer::run() { return impl_->run_all(); }
const BottleneckMetrics& Trainer::evidence() const { return impl_->evidence; }

void Trainer::one_step() {
  Impl& t = *impl_;
  if (!t.runner) t.start_feeding();
  t.device_monitor.before_enqueue();
  t.enqueue_one();
  bool stopping = false, checkpoint = false;
  t.collect_one(&stopping, &checkpoint);
}

Exit train(World& world, const RunConfig& config, Timeline::Clock::time_point begun, BottleneckMetrics* evidence) {
  Trainer trainer(world, config, begun);
  const Exit result = trainer.run();
  if (evidence) *evidence = trainer.evidence();
  return result;
}

}  // namespace millrace
