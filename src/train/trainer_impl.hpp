// The state and functions of a training run. trainer.cpp contains the loop. trainer_events.cpp contains the other
// parts: checkpoints, evaluations, the account, and the end of the run.
#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "millrace/config/schedule.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/train/session/network.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/step.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint_clock.hpp"
#include "train/evaluate.hpp"
#include "train/logging/account_builder.hpp"
#include "train/logging/device_monitor.hpp"
#include "train/logging/progress.hpp"
#include "train/logging/run_files.hpp"
#include "train/logging/run_logger.hpp"
#include "train/logging/speed_of_light.hpp"
#include "train/logging/tracer.hpp"
#include "train/stop_request.hpp"
#include "train/trainer.hpp"

namespace millrace {

struct Trainer::Impl {
  Timeline timeline;
  RunFolderLock lock;                    // held before the checkpoint is looked for
  std::optional<CheckpointModel> found;  // the checkpoint that the run resumes from, before its tensors are read
  Session s;
  std::filesystem::path dir;
  DeviceMonitor device_monitor;
  SpeedOfLight speed_of_light;
  AccountBuilder account_builder;
  Network network;
  std::optional<Schedule> schedule;
  CheckpointStore store;
  StopRequest stop;
  CheckpointClock clock;
  Progress progress;
  Launch start;             // of this process; known to rank 0
  RunState run;             // as of the last collected step
  std::int64_t issued = 0;  // steps enqueued; run.step of them have been collected
  const int lag;            // steps_in_flight()
  std::unique_ptr<Loader> loader;
  std::unique_ptr<StepRunner> runner;
  std::optional<Evaluator> evaluator;
  std::optional<RunLogger> run_logger;  // on rank 0
  std::optional<Tracer> tracer;
  StepMetrics last;                      // of the last collected step
  std::optional<Evaluation> validation;  // the last one
  double train_seconds = 0;
  std::int64_t saved_step = 0;  // of the save in progress
  bool save_needed = false;     // as passed to checkpoint()
  std::string unsaved;          // why the newest checkpoint could not be written; empty if it was written
  std::int64_t trained_samples = 0;
  std::int64_t trained_steps = 0;
  std::int64_t consecutive_overflows = 0;
  BottleneckMetrics metrics;  // known at the end

  Impl(World& world, const RunConfig& config, Timeline::Clock::time_point begun);

  // The whole run: lock the folder, resume, train, finish.
  Exit run_all();
  void begin_anew();
  void resume();
  // Why there is nothing to train, or "": the run has already done all steps. Nothing is written then.
  std::string nothing_to_train() const;
  void start_feeding();
  Schedule make_schedule() const;
  Exit loop();
  void enqueue_one();
  // Collects the results of one step, and goes on with a save. Sets *stopping and *wants_checkpoint if any rank
  // requests it; never clears them.
  void collect_one(bool* stopping, bool* wants_checkpoint);
  void advance(const StepResult& result);       // updates counters, the account and the load balancer
  void check_finite(const StepResult& result);  // ends the run if it has diverged or too many samples were unreadable
  // Begins to write a checkpoint. needed: it does not depend on checkpoint.every (see RankAccount).
  void checkpoint(bool needed);
  void saved(const std::string& problem);  // at the end of a save
  [[noreturn]] void fail_with_differing_replicas();
  bool evaluates_after(std::int64_t steps) const;  // there is an evaluation after so many steps of the run
  bool evaluate_now();  // returns true if the weights are better than ever before, by checkpoint.best
  void lower_rate_on_plateau(const std::string& metric, double value);  // optim.schedule = plateau
  bool out_of_patience() const;  // the last train.patience evaluations have not improved, so the run ends
  std::string describe_patience() const;
  void count_unread();  // ends the run if too many samples could not be read; collective
  [[noreturn]] void diverged();
  Account account();  // of all ranks; collective
  void finish(const std::string& status, Exit code);
  void report_ending(Exit result);
  void trace_phase(Phase phase, std::chrono::steady_clock::time_point began);
};

}  // namespace millrace
