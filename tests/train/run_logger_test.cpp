// The files that a run writes during training: events for TensorBoard, a file for Prometheus, and lines of metrics.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "millrace/base/files.hpp"
#include "support/event_reader.hpp"
#include "support/expect_error.hpp"
#include "support/exposition_reader.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/logging/run_files.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace run_logger_test {

namespace fs = std::filesystem;
using nlohmann::json;

struct Watched : test::TemporaryFolder {
  RunConfig config = test::small_run(true, "96");  // three steps per epoch
  Watched() {
    config.data.valid = {"synthetic:images:rows=40,shape=9x8x3,classes=4,seed=2"};
    config.run.dir = (path / "run").string();
    config.run.precision = Precision::fp16;
    config.optim.loss_scale = 1024;
    config.test.force_overflow_at = 2;
    config.optim.schedule = LrSchedule::constant;
    config.log.tensorboard = true;
    config.log.prometheus = (path / "run.prom").string();
    config.log.prometheus_every = 1e-9;
  }
  void train(std::int64_t steps, int ranks = 1) {
    config.train.steps = steps;
    run_thread_world(ranks, [&](World& world) { millrace::train(world, config); });
  }
  std::vector<json> lines() const { return test::metrics_of(path / "run"); }
  auto status() const { return test::read_exposition(read_file(path / "run.prom")); }
  auto shown() const { return test::shown_by_tensorboard(path / "run" / "tensorboard"); }
};

double only(const std::map<std::string, std::vector<test::Series>>& status, const std::string& name) {
  const auto it = status.find(name);
  EXPECT_TRUE(it != status.end() && it->second.size() == 1) << name;
  return it == status.end() ? -1 : it->second.at(0).value;
}

TEST(RunLogger, TensorBoardShowsEachStepOnceAcrossLaunches) {
  Watched run;
  run.train(7, 2);
  const double before = unix_time();
  for (const std::int64_t lost : {7, 6})  // as if the run had been killed: it resumes at step 3
    fs::remove(run.path / "run/checkpoints" / fmt::format("step-0000000{}.h5", lost));
  run.train(9, 2);
  const double after = unix_time();
  run.train(9, 2);  // already finished: nothing is added
  EXPECT_EQ(std::distance(fs::directory_iterator(run.path / "run/tensorboard"), {}), 2);

  const auto shown = run.shown();
  const auto lines = run.lines();
  ASSERT_EQ(lines.size(), 9u);
  const std::map<std::string, std::string> keys{{"train/loss", "loss"},
                                                {"train/learning_rate", "lr"},
                                                {"train/grad_norm", "grad_norm"},
                                                {"train/loss_scale", "loss_scale"},
                                                {"speed/samples_per_second", "samples_per_second"},
                                                {"speed/step_ms", "step_ms"},
                                                {"speed/speed_of_light", "speed_of_light"},
                                                {"phase_ms/data_wait", "data_wait_ms"},
                                                {"phase_ms/copy", "copy_ms"},
                                                {"phase_ms/forward", "forward_ms"},
                                                {"phase_ms/backward", "backward_ms"},
                                                {"phase_ms/communication", "communication_ms"},
                                                {"phase_ms/optimizer", "optimizer_ms"},
                                                {"phase_ms/other", "other_ms"}};
  for (const auto& [tag, key] : keys) {
    const auto& points = shown.at(tag);
    ASSERT_EQ(points.size(), 9u) << tag;
    for (std::size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(points[i].step, std::int64_t(i) + 1) << tag;
      if (lines[i][key].is_null()) {
        EXPECT_FALSE(std::isfinite(points[i].value)) << tag << " " << i;
        continue;
      }
      const double expected = lines[i][key];  // metrics.jsonl rounds times to 0.1 us and rates to six digits
      EXPECT_NEAR(points[i].value, expected, 1e-5 * std::abs(expected) + 1e-4) << tag << " " << i;
    }
  }
  for (std::size_t i = 3; i < 9; ++i) {
    const double at = shown.at("train/loss")[i].wall_time;
    EXPECT_TRUE(at >= before && at <= after) << i;
  }
  for (const char* tag : {"valid/loss", "valid/top1", "valid/top5", "valid/macro_f1", "valid/auc"}) {
    std::vector<std::int64_t> steps;
    for (const auto& point : shown.at(tag)) steps.push_back(point.step);
    EXPECT_EQ(steps, (std::vector<std::int64_t>{3, 6, 9})) << tag;
  }
  EXPECT_EQ(shown.size(), keys.size() + 5);
}

TEST(RunLogger, EventsCanBeLessFrequentThanSteps) {
  Watched run;
  run.config.log.tensorboard_every = 4;
  run.config.log.prometheus.clear();
  run.train(9);
  std::vector<std::int64_t> steps;
  const auto shown = run.shown();
  for (const auto& point : shown.at("train/loss")) steps.push_back(point.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 8}));
  EXPECT_FALSE(fs::exists(run.path / "run.prom"));
}

TEST(RunLogger, ThePrometheusFileShowsTheProgressOfTheRun) {
  Watched run;
  run.config.log.tensorboard = false;
  const double before = unix_time();
  run.train(5, 2);
  EXPECT_FALSE(fs::exists(run.path / "run/tensorboard"));
  run.config.test.force_overflow_at = 7;
  run.train(8, 2);
  const auto status = run.status();
  const json last = run.lines().back(), summary = json::parse(read_file(run.path / "run/summary.json"));
  for (const auto& [name, value] :
       std::map<std::string, double>{{"millrace_run_active", 0},
                                     {"millrace_run_exit_code", 0},
                                     {"millrace_ranks", 2},
                                     {"millrace_step", 8},
                                     {"millrace_planned_steps", 8},
                                     {"millrace_epoch", 2},
                                     {"millrace_steps_total", 3},
                                     {"millrace_samples_total", 96},
                                     {"millrace_overflow_steps_total", 1},
                                     {"millrace_skipped_samples_total", 0},
                                     {"millrace_loss", last["loss"]},
                                     {"millrace_learning_rate", last["lr"]},
                                     {"millrace_loss_scale", last["loss_scale"]},
                                     {"millrace_gradient_norm", last["grad_norm"]},
                                     {"millrace_checkpoint_step", 8},
                                     {"millrace_validation_step", 8},
                                     {"millrace_validation_loss", summary["valid_loss"]},
                                     {"millrace_validation_accuracy_ratio", summary["valid_accuracy"]}})
    EXPECT_DOUBLE_EQ(only(status, name), value) << name;
  for (const char* name : {"millrace_last_update_timestamp_seconds", "millrace_checkpoint_timestamp_seconds"})
    EXPECT_TRUE(only(status, name) >= before && only(status, name) <= unix_time()) << name;
  const auto& labels = status.at("millrace_step").at(0).labels;
  EXPECT_EQ(labels.at("run"), run.config.run.dir);
  EXPECT_FALSE(labels.at("host").empty());

  // Each second of rank 0 counts in exactly one phase.
  const auto& phases = status.at("millrace_phase_seconds_total");
  ASSERT_EQ(phases.size(), std::size_t(phase_count));
  double sum = 0;
  for (const auto& phase : phases) sum += phase.value;
  EXPECT_NEAR(sum, summary["seconds"].get<double>(), 0.05 * sum + 0.05);
  EXPECT_GT(only(status, "millrace_step_seconds_total"), 0);
}

TEST(RunLogger, ThePrometheusFileSaysWhyTheRunEnded) {
  Watched run;
  run.config.optim.loss_scale = StepState().scale_floor;
  test::expect_error(Exit::diverged, "", [&] { run.train(5); });
  EXPECT_EQ(only(run.status(), "millrace_run_active"), 0);
  EXPECT_EQ(only(run.status(), "millrace_run_exit_code"), double(Exit::diverged));
  EXPECT_EQ(run.shown().at("train/loss").size(), 2u);
}

TEST(RunLogger, TrainingContinuesWithOneWarningPerFileThatCannotBeWritten) {
  Watched run;
  run.config.log.prometheus = (run.path / "none/run.prom").string();
  fs::create_directories(run.path / "run");
  std::ofstream(run.path / "run/tensorboard") << "a file in the folder's place";
  ::testing::internal::CaptureStderr();
  run.train(5);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(run.lines().size(), 5u);
  std::map<std::string, int> times;
  for (std::size_t at = 0; (at = said.find("training goes on", at)) != said.npos; ++at)
    ++times[said.substr(at, said.find('\n', at) - at)];
  EXPECT_EQ(times.size(), 2u) << said;
  for (const auto& [what, count] : times) EXPECT_EQ(count, 1) << what;
}

TEST(RunLogger, FilesOfOtherProgramsAreNotReplaced) {
  for (const char* name : {"run.prom", "run/config.cfg", "run/metrics.jsonl", "run/summary.json"}) {
    Watched run;
    fs::create_directories(run.path / "run");
    std::ofstream(run.path / name) << "not of millrace\n";
    const std::string message = test::message_of([&] { run.train(5); }, Exit::config);
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_EQ(read_file(run.path / name), "not of millrace\n");
  }
  Watched run;
  run.train(5);
  run.train(8);  // its own files are replaced
  fs::remove(run.path / "run/lock");
  run.train(10);  // also in a copy of a run, without the lock
}

TEST(RunLogger, ANewRunRemovesTheFilesOfTheOldRun) {
  Watched run;
  run.train(7);
  const fs::path dir = run.path / "run";
  json summary = json::parse(read_file(dir / "summary.json"));
  const json before = json::parse(read_file(dir / "run.json"));
  EXPECT_EQ(summary.at("started"), before.at("started"));
  EXPECT_EQ(summary.at("pid"), before.at("pid"));
  std::ofstream(dir / "layers.json") << "{}";
  std::ofstream(dir / "mine.txt") << "kept";
  ASSERT_TRUE(fs::exists(dir / "trace.json"));
  remove_old_run(dir);
  for (const char* gone : {"summary.json", "trace.json", "layers.json", "shares.jsonl", "checkpoints/latest"})
    EXPECT_FALSE(fs::exists(dir / gone)) << gone;
  EXPECT_TRUE(fs::is_empty(dir / "tensorboard"));
  EXPECT_TRUE(CheckpointStore::list(dir / "checkpoints").empty());
  EXPECT_TRUE(fs::exists(dir / "mine.txt"));
}

TEST(RunLogger, ARunContinuesIfItsPathsAreNotUtf8) {
  Watched run;
  run.config.run.dir = (run.path / "caf\xe9").string();  // Latin-1
  ::setenv("SLURM_JOB_NAME", "\xe9t\xe9", 1);
  run.train(4);
  run.train(7);  // resumes from a checkpoint that contains the folder's name
  ::unsetenv("SLURM_JOB_NAME");
  const fs::path dir = run.config.run.dir;
  EXPECT_EQ(json::parse(read_file(dir / "run.json"))["environment"]["SLURM_JOB_NAME"], "\ufffdt\ufffd");
  EXPECT_EQ(json::parse(read_file(dir / "run.json"))["resumed_at_step"], 4);
  EXPECT_EQ(json::parse(read_file(dir / "summary.json"))["steps"], 7);
}

// The same holds when the run is not told to start from the beginning.
TEST(RunLogger, ARunThatFindsNoCheckpointRemovesTheOldFiles) {
  Watched run;
  run.train(7);
  fs::remove_all(run.path / "run/checkpoints");
  ASSERT_TRUE(fs::exists(run.path / "run/trace.json"));
  run.config.log.profile_steps = 0;
  run.train(7);
  EXPECT_FALSE(fs::exists(run.path / "run/trace.json"));
}

}  // namespace run_logger_test
}  // namespace millrace
