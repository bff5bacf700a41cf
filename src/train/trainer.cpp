// The training loop.
#include "train/trainer.hpp"

#include <fmt/core.h>

#include <cmath>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "millrace/weights/safetensors.hpp"
#include "train/checkpoint/load_weights.hpp"
#include "train/checkpoint/on_first_rank.hpp"
#include "train/checkpoint/replicas.hpp"
#include "train/checkpoint/run_state.hpp"
#include "train/overflow.hpp"
#include "train/resume.hpp"
#include "train/trainer_impl.hpp"

namespace millrace {
namespace {

// Warn after this many consecutive overflows. A loss scale that merely starts too high needs fewer steps to come down.
constexpr std::int64_t many_overflows = 8;

std::optional<CheckpointModel> find_resumed(World& world, const RunConfig& config) {
  if (config.run.resume == Resume::never) return std::nullopt;
  auto found = CheckpointStore::newest_model(world, std::filesystem::path(config.run.dir) / "checkpoints");
  if (found) require_same_function(*found, config);
  return found;
}

}  // namespace

Trainer::Impl::Impl(World& world, const RunConfig& config, Timeline::Clock::time_point begun)
    : timeline(begun),
      lock(world, config.run.dir),
      found(find_resumed(world, config)),
      s(world, config, Session::Use::train, found && found->record ? &*found->record : nullptr),
      dir(config.run.dir),
      device_monitor(s),
      speed_of_light(s),
      account_builder(s),
      network(s.compute, s.spec, plan_within_memory(s)),
      store(world, s.compute, dir / "checkpoints", config.checkpoint.keep),
      stop(config.run, dir, world.rank() == 0),
      clock(config.checkpoint, world.node_count(), stop.limited()),
      progress(world.rank() == 0, on_terminal(), config.log.every),
      lag(steps_in_flight(*s.compute.device)) {
  init_loss_scale(s, network);
  if (config.checkpoint.safetensors) {
    on_first_rank(world, [&] { require_own_safetensors(dir / "model.safetensors"); });
    store.also_export(s.spec, dir / "model.safetensors");
  }
  device_monitor.set_roofline(network, s.spec.train_rows);
  speed_of_light.set_network(network);
  if (config.train.balance != "even" && config.train.micro_batch == 0 && world.size() > 1 &&
      network.layout().stats_count > 0)
    log::warn(
        fmt::format("train.balance: batch norms see micro-batches of {} samples, so that work can move between ranks. "
                    "set train.micro_batch to choose their size",
                    s.batching.micro_batch));
  require_metric(config.checkpoint.best, s.spec);
  make_schedule();  // refuses what it cannot do before anything is written or removed
  if (s.data.has_valid) evaluator.emplace(s, network);
}

Exit Trainer::Impl::run_all() {
  lock.create();
  watchdog::set_folder(dir);
  PrometheusFile::require_own(s.world, s.config.log.prometheus);
  resume();
  if (const std::string why = nothing_to_train(); !why.empty()) {
    progress.line(why);
    return Exit::ok;
  }
  if (run.step == 0)
    for (const std::string& line : examine_data(s.world, s.config, s.data)) progress.line(line);
  start = write_run_json(s, dir, run.step, speed_of_light);
  if (s.world.rank() == 0) {
    run_logger.emplace(s, run, timeline);
    run_logger->shares(*s.batching.load_balancer);
  }
  start_feeding();
  tracer.emplace(s, *loader, dir / "trace.json", run.step);
  progress.line(describe_run(s, network));
  const Exit result = loop();
  timeline.enter(Phase::other);
  if (result == Exit::ok && !validation && s.data.has_valid) evaluate_now();
  report_ending(result);
  return result;
}

Exit Trainer::Impl::loop() {
  const watchdog::PartScope part(watchdog::Part::train);
  bool stopping = false;
  const std::int64_t total = s.total_steps();
  while (run.step < total && !stopping && !out_of_patience()) {
    bool requested = false;
    timeline.enter(Phase::other);
    device_monitor.before_enqueue();
    speed_of_light.before_enqueue();
    enqueue_one();
    // At a boundary the host collects all steps before it enqueues the next: at the end of an epoch, before an
    // evaluation or a checkpoint, and at the end of a traced window.
    const bool boundary = s.batching.epochs.step_in_epoch(issued) == 0 || issued == total || evaluates_after(issued) ||
                          clock.due_after(issued, s.batching.epochs) || device_monitor.window_ends();
    while (run.step < issued - (boundary || stopping ? 0 : lag)) collect_one(&stopping, &requested);
    if (stopping || requested)
      while (run.step < issued) collect_one(&stopping, &requested);
    if (run.step < issued) continue;
    bool best = false;
    if (evaluates_after(run.step)) best = evaluate_now() && !clock.never();
    const bool needed = best || stopping || run.step == total || out_of_patience();
    if (clock.due_after(run.step, s.batching.epochs) || requested || needed) checkpoint(needed);
  }
  if (store.saving()) saved(store.finish());
  if (run.step == total) return Exit::ok;
  if (!out_of_patience()) return Exit::stopped;
  progress.line(fmt::format("ended at step {} of {}: {}", run.step, total, describe_patience()));
  return Exit::ok;
}

void Trainer::Impl::enqueue_one() {
  if (tracer) tracer->before_enqueue(issued);
  runner->enqueue(issued, schedule->learning_rate(s.batching.epochs.even(issued), run.plateau.rate));
  ++issued;
}

void Trainer::Impl::collect_one(bool* stopping, bool* wants_checkpoint) {
  const bool due = s.world.rank() == 0 && clock.due_at() && !store.saving();
  const std::int64_t step = run.step;
  const StepResult result = runner->collect(step, {stop.requested(last.seconds, clock.duration()), due, store.busy()});
  watchdog::step(result.step);
  device_monitor.after_collect();
  advance(result);
  if (tracer) tracer->collected(step, *runner);
  if (run_logger) {
    run_logger->step(last);
    run_logger->shares(*s.batching.load_balancer);
  }
  progress.step(last, s.total_steps());
  check_finite(result);
  if (result.replicas_differ) fail_with_differing_replicas();
  if (store.saving() && !result.saving)
    if (const auto outcome = store.advance()) saved(*outcome);
  *stopping = *stopping || result.stop;
  *wants_checkpoint = *wants_checkpoint || result.checkpoint;
}

void Trainer::Impl::advance(const StepResult& result) {
  last = result.metrics;
  speed_of_light.step(last);
  for (int p = 0; p < phase_count; ++p)
    if (Phase(p) != Phase::other) timeline.add(Phase(p), last.phase_seconds[std::size_t(p)]);
  train_seconds += last.seconds;
  clock.step(last.seconds);
  trained_samples += last.samples - run.samples;
  ++trained_steps;
  run.step = result.step;
  run.samples = last.samples;
  run.epoch = s.batching.epochs.epoch(run.step);
  run.step_in_epoch = s.batching.epochs.step_in_epoch(run.step);
  account_builder.step(last, runner->timer());
  const std::string moved = s.batching.load_balancer->after_step(last, runner->timer().timing());
  if (!moved.empty()) progress.line(moved);
}

void Trainer::Impl::check_finite(const StepResult& result) {
  consecutive_overflows = result.found_inf ? consecutive_overflows + 1 : 0;
  if (consecutive_overflows == many_overflows && !result.at_floor)
    log::warn(fmt::format("overflow in {} consecutive steps: {}. lower optim.lr or set run.precision = bf16",
                          consecutive_overflows, describe_gradient(s.world, *s.compute.device, network)));
  count_unread();
  if ((result.found_inf || (result.counted && !std::isfinite(last.loss))) && result.at_floor) diverged();
}

void Trainer::Impl::start_feeding() {
  loader = std::make_unique<Loader>(*s.compute.device, *s.data.train_source, s.data.train, *s.batching.train_order,
                                    s.step_loader_options(), s.micro_batches(issued, s.total_steps()));
  runner = std::make_unique<StepRunner>(s, network, *loader);
  schedule = make_schedule();
}

Schedule Trainer::Impl::make_schedule() const {
  const Epochs& epochs = s.batching.epochs;
  return {s.config.optim, epochs.steps_per_epoch(), epochs.even(s.total_steps()), s.batching.global_batch};
}

void Trainer::Impl::begin_anew() {
  // Before anything is removed: the weights may be those of the old run.
  const ModelOptions& m = s.config.model;
  if (s.spec.model.exported && m.init == ModelInit::archive && m.weights.empty())
    progress.line(load_archive_weights(s.world, s.compute, s.spec, network));
  if (!m.weights.empty()) require_kept(m.weights, dir);
  if (!m.weights.empty()) progress.line(load_weights(s.world, s.compute, s.spec, network, m.weights, m.weights_skip));
  // A later resume must not find the checkpoints of an old run. It may also have left files but no checkpoint.
  if (s.world.rank() == 0) {
    remove_old_run(dir);
    if (const std::string kept = set_old_export_aside(dir); !kept.empty()) progress.line(kept);
  }
  run.model = to_json(s.model_record());  // now: model.file may be gone when the first checkpoint is written
  s.world.barrier();
  copy_replicas(s.world, *s.compute.device, network);
}

void Trainer::Impl::resume() {
  const watchdog::PartScope part(watchdog::Part::checkpoint);
  if (s.config.run.resume == Resume::never) return begin_anew();
  const auto found = store.load_newest(network);
  if (!found && s.config.run.resume == Resume::must)
    fail(Exit::data, "run.resume = must, but there is no checkpoint in {}", (dir / "checkpoints").string());
  if (!found) return begin_anew();
  if (!this->found)
    fail(Exit::config, "run.dir: another run began in {} at the same time and has ended now. start again to resume it",
         dir.string());
  run = *found;
  if (s.world.rank() == 0) store.note_latest(run.step);
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
  if (run.step < s.total_steps())
    progress.line(fmt::format("resumed at step {} of {} (epoch {}, {} samples)", run.step, s.total_steps(),
                              run.epoch + 1, run.samples));
}

std::string Trainer::Impl::nothing_to_train() const {
  const std::int64_t total = s.total_steps();
  if (!found || (run.step < total && !out_of_patience())) return "";
  std::int64_t ended = run.step > total || (s.world.rank() == 0 && is_final_summary(dir / "summary.json", run.step));
  s.world.broadcast(&ended, sizeof ended, 0);
  if (!ended) return "";  // the run ended before it could write its summary
  if (run.step < total)
    return fmt::format(
        "finished: nothing trained. the run ended at step {} of {}: {}. raise train.patience to train on, or use "
        "`millrace eval {}`",
        run.step, total, describe_patience(), s.config.run.dir);
  const bool by_steps = s.config.train.steps > 0;
  const std::string changed = changed_training_keys(run.config, s.config.text);
  return fmt::format(
      "{}: nothing trained. {}the run has done {} steps, and {} = {} asks for {}. raise it to train on, set another "
      "run.dir to train anew, or use `millrace eval {}`",
      run.step == total ? "finished" : "finished already",
      changed.empty() ? changed : fmt::format("without effect: {}. ", changed), run.step,
      by_steps ? "train.steps" : "train.epochs", value_text(s.config, by_steps ? "train.steps" : "train.epochs"), total,
      s.config.run.dir);
}

Trainer::Trainer(World& world, const RunConfig& config, Timeline::Clock::time_point begun)
    : impl_(std::make_unique<Impl>(world, config, begun)) {}
Trainer::~Trainer() = default;
Exit Trainer::run() { return impl_->run_all(); }
const BottleneckMetrics& Trainer::evidence() const { return impl_->metrics; }

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
