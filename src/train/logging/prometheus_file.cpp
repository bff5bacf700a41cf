#include "train/logging/prometheus_file.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/message_of.hpp"

namespace millrace {
namespace {

constexpr std::string_view beginning = "# HELP millrace_run_active ";

std::string job_id() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"})
    if (const char* id = std::getenv(name)) return id;
  return "";
}

}  // namespace

PrometheusFile::PrometheusFile(const Session& s, const RunState& run, const Timeline& timeline)
    : path_(s.config.log.prometheus),
      every_(s.config.log.prometheus_every),
      labels_{{"run", s.config.run.dir}, {"host", s.world.host()}, {"job_id", job_id()}},
      ranks_(s.world.size()),
      planned_steps_(s.total_steps()),
      timeline_(timeline),
      valid_step_(run.valid_step),
      valid_loss_(run.valid_loss),
      valid_accuracy_(run.valid_accuracy) {
  last_.step = run.step;
  last_.epoch = run.epoch;
  last_.samples = run.samples;
  struct stat latest {};
  if (run.step > 0 && ::stat((s.config.run.dir + "/checkpoints/latest").c_str(), &latest) == 0) {
    checkpoint_step_ = run.step;
    checkpoint_time_ = double(latest.st_mtime);
  }
  write();
}

void PrometheusFile::require_own(World& world, const std::filesystem::path& path) {
  std::string problem;
  if (world.rank() == 0 && !path.empty()) problem = message_of([&] { require_own_file(path, beginning); });
  world.agree(Exit::config, problem.empty() ? "" : "log.prometheus: " + problem);
}

void PrometheusFile::step(const StepMetrics& m) {
  ++steps_;
  skipped_ += m.skipped;
  unread_ += m.unread_samples;
  samples_ += m.samples - last_.samples;
  step_seconds_ += m.seconds;
  last_ = m;
  if (std::chrono::steady_clock::now() - written_ >= every_) write();
}

void PrometheusFile::evaluation(const RunState& run) {
  valid_step_ = run.valid_step;
  valid_loss_ = run.valid_loss;
  valid_accuracy_ = run.valid_accuracy;
}

void PrometheusFile::checkpoint(std::int64_t step) {
  checkpoint_step_ = step;
  checkpoint_time_ = unix_time();
}

void PrometheusFile::ended(Exit code) {
  exit_code_ = int(code);
  write();
}

std::string PrometheusFile::text() {
  using enum Exposition::Kind;
  Exposition out(labels_);  // its first line must be the one that begins with `beginning`
  const StepMetrics& m = last_;
  out.add("millrace_run_active", gauge, "1 while the run is active, 0 when it has ended.", exit_code_ < 0);
  if (exit_code_ >= 0)
    out.add("millrace_run_exit_code", gauge, "Exit code: 0 finished, 75 stopped and resumable.", exit_code_);
  out.add("millrace_last_update_timestamp_seconds", gauge, "Time at which this file was written.", unix_time());
  out.add("millrace_ranks", gauge, "Number of ranks of the run.", ranks_);
  out.add("millrace_step", gauge, "Optimizer steps done, including those of earlier launches.", double(m.step));
  out.add("millrace_planned_steps", gauge, "Optimizer steps at which the run is complete.", double(planned_steps_));
  out.add("millrace_epoch", gauge, "Current epoch, counted from 0.", double(m.epoch));
  out.add("millrace_steps_total", counter, "Optimizer steps since this launch.", double(steps_));
  out.add("millrace_samples_total", counter, "Samples trained on since this launch, over all ranks.", double(samples_));
  out.add("millrace_step_seconds_total", counter, "Total time of the steps since this launch.", step_seconds_);
  out.add("millrace_overflow_steps_total", counter, "Steps since this launch that were skipped because of an overflow.",
          double(skipped_));
  out.add("millrace_skipped_samples_total", counter,
          "Samples since this launch that were skipped because they could not be read, over all ranks.",
          double(unread_));
  if (steps_ > 0) {
    out.add("millrace_samples_per_second", gauge, "Throughput of the last step.", m.samples_per_second);
    if (m.speed_of_light > 0)
      out.add("millrace_speed_of_light_ratio", gauge,
              "Least time of the last step by the rates of the machine, over its time.", m.speed_of_light);
    out.add("millrace_loss", gauge, "Training loss of the last step.", m.loss);
    out.add("millrace_learning_rate", gauge, "Learning rate of the last step.", m.lr);
    out.add("millrace_gradient_norm", gauge, "Gradient norm of the last step.", m.grad_norm);
    out.add("millrace_loss_scale", gauge, "Loss scale of the last step; 1 without loss scaling.", m.loss_scale);
  }
  Exposition::Values phases;
  const auto seconds = timeline_.seconds();
  for (std::size_t p = 0; p < seconds.size(); ++p) {
    phase_seconds_[p] = std::max(phase_seconds_[p], seconds[p]);
    phases.emplace_back(name_of(Phase(p)), phase_seconds_[p]);
  }
  out.add("millrace_phase_seconds_total", counter, "Wall time of rank 0 since this launch, by phase.", "phase", phases);
  if (checkpoint_step_ >= 0) {
    out.add("millrace_checkpoint_step", gauge, "Step of the newest checkpoint.", double(checkpoint_step_));
    out.add("millrace_checkpoint_timestamp_seconds", gauge, "Time at which the newest checkpoint was written.",
            checkpoint_time_);
  }
  if (valid_step_ >= 0) {
    out.add("millrace_validation_step", gauge, "Step of the last evaluation.", double(valid_step_));
    out.add("millrace_validation_loss", gauge, "Loss of the last evaluation.", valid_loss_);
    if (valid_accuracy_ >= 0)
      out.add("millrace_validation_accuracy_ratio", gauge, "Top-1 accuracy of the last evaluation, from 0 to 1.",
              valid_accuracy_);
  }
  return out.text();
}

void PrometheusFile::write() {
  written_ = std::chrono::steady_clock::now();
  try {
    require_own_file(path_, beginning);
    replace_file(path_, text());
  } catch (const Error& e) {
    if (!warned_)
      log::warn(fmt::format("log.prometheus: {}. training goes on, and writing is tried again every {:g} s", e.what(),
                            every_.count()));
    warned_ = true;
  }
}

}  // namespace millrace
