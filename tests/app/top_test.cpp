// `millrace top`: reading a run folder, and the lines that it shows.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "app/top/styled_line.hpp"
#include "app/top/top_view.hpp"
#include "millrace/base/error.hpp"
#include "millrace/runs/run_monitor.hpp"
#include "support/temporary_folder.hpp"

namespace millrace::app {
namespace top_test {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

struct TemporaryFolder : test::TemporaryFolder {
  TemporaryFolder() { fs::create_directories(path / "checkpoints"); }
  void write(const std::string& name, const std::string& text, std::ios::openmode mode = std::ios::trunc) const {
    std::ofstream(path / name, std::ios::out | mode) << text;
  }
};

TEST(FileTail, ReturnsEachCompleteLineOnce) {
  const TemporaryFolder folder;
  FileTail tail(folder.path / "log");
  EXPECT_EQ(tail.read().modified, -1);
  folder.write("log", "a\nb\nhal");
  auto news = tail.read();
  EXPECT_EQ(news.lines, (Texts{"a", "b"}));
  EXPECT_FALSE(news.restarted);
  EXPECT_GT(news.modified, 1e9);
  EXPECT_TRUE(tail.read().lines.empty());
  folder.write("log", "f\nc\n", std::ios::app);
  EXPECT_EQ(tail.read().lines, (Texts{"half", "c"}));
}

TEST(FileTail, SurvivesTruncationReplacementAndRemoval) {
  const TemporaryFolder folder;
  FileTail tail(folder.path / "log");
  folder.write("log", "a\nb\nc\n");
  tail.read();
  fs::resize_file(folder.path / "log", 2);  // a resumed run truncates its files like this
  auto news = tail.read();
  EXPECT_TRUE(news.restarted);
  EXPECT_EQ(news.lines, Texts{"a"});
  folder.write("log.new", "x\ny\nz\n");
  fs::rename(folder.path / "log.new", folder.path / "log");
  news = tail.read();
  EXPECT_TRUE(news.restarted);
  EXPECT_EQ(news.lines, (Texts{"x", "y", "z"}));
  fs::remove(folder.path / "log");
  news = tail.read();
  EXPECT_TRUE(news.restarted);
  EXPECT_EQ(news.modified, -1);
  EXPECT_FALSE(tail.read().restarted);
  folder.write("log", "back\n");
  EXPECT_EQ(tail.read().lines, Texts{"back"});
}

TEST(FileTail, ReadsOnlyTheEndOfALongFile) {
  const TemporaryFolder folder;
  folder.write("log", "first line\nsecond\nthird\n");
  FileTail tail(folder.path / "log", 10);
  EXPECT_EQ(tail.read().lines, Texts{"third"});
  folder.write("log", "a line of more than ten bytes\n", std::ios::app);
  EXPECT_EQ(tail.read().lines, Texts{"a line of more than ten bytes"});
}

StepMetrics step(std::int64_t number, double seconds, double loss = 1) {
  StepMetrics m;
  m.step = number;
  m.samples = 10 * number;
  m.loss = loss;
  m.seconds = seconds;
  m.samples_per_second = 10 / seconds;
  m.phase_seconds[std::size_t(Phase::forward)] = seconds;
  return m;
}

TEST(StepHistory, AveragesOverAllAndOverRecentSteps) {
  StepHistory h;
  EXPECT_TRUE(h.empty());
  for (int i = 1; i <= 1000; ++i) h.add(step(i, 0.1));
  for (int i = 1001; i <= 2000; ++i) h.add(step(i, 0.2));
  EXPECT_NEAR(h.all().rate(), 20000 / 300.0, 1e-6);
  EXPECT_NEAR(h.recent().rate(), 50, 1e-6);
  EXPECT_NEAR(h.recent().step_seconds(), 0.2, 1e-9);
  EXPECT_LE(h.recent().seconds, 15);
  EXPECT_NEAR(h.recent().phase_seconds[std::size_t(Phase::forward)], h.recent().seconds, 1e-9);
  EXPECT_EQ(h.last().step, 2000);
}

TEST(StepHistory, LossesAreMeansForAnyNumberOfSteps) {
  StepHistory h;
  for (int i = 1; i <= 100000; ++i) h.add(step(i, 0.001, i <= 50000 ? 4 : i % 2 ? 1 : 3));
  const auto losses = h.losses(40);
  ASSERT_LE(losses.size(), 40u);
  ASSERT_GE(losses.size(), 20u);
  EXPECT_EQ(losses.front(), 4);
  EXPECT_NEAR(losses.back(), 2, 0.02);
  EXPECT_TRUE(h.losses(0).empty());
}

TEST(StepHistory, ARepeatedStepRestartsTheHistory) {
  StepHistory h;
  for (int i = 1; i <= 9; ++i) h.add(step(i, 1, NAN));
  EXPECT_TRUE(std::isnan(h.losses(5).front()));
  h.add(step(6, 1, 5));
  EXPECT_EQ(h.all().steps, 1);
  EXPECT_EQ(h.first_step(), 6);
  EXPECT_EQ(h.losses(5), std::vector<double>{5});
}

TEST(Top, TheStatusOfARunIsJudgedByItsFiles) {
  StatusInputs s;
  EXPECT_EQ(run_status_of(s), RunStatus::absent);
  s.run_age = 100;
  EXPECT_EQ(run_status_of(s), RunStatus::starting);
  s.same_host = true;
  EXPECT_EQ(run_status_of(s), RunStatus::process_lost);
  s.process_exists = true;
  s.metrics_age = 50;
  EXPECT_EQ(run_status_of(s), RunStatus::starting);  // truncated to the checkpoint, no step yet
  s.stepped = true;
  s.metrics_age = 1;
  s.step_seconds = 0.1;
  EXPECT_EQ(run_status_of(s), RunStatus::running);
  s.metrics_age = 60;
  EXPECT_EQ(run_status_of(s), RunStatus::no_progress);
  s.step_seconds = 30;
  EXPECT_EQ(run_status_of(s), RunStatus::running);
  s.step_seconds = 0.1;
  s.process_exists = false;
  EXPECT_EQ(run_status_of(s), RunStatus::process_lost);
  s.same_host = false;
  EXPECT_EQ(run_status_of(s), RunStatus::no_progress);
  s.summary_age = 200;  // of the previous launch
  EXPECT_EQ(run_status_of(s), RunStatus::no_progress);
  s.summary_is_final = true;  // finished, and launched again
  EXPECT_EQ(run_status_of(s), RunStatus::ended);
  s.summary_is_final = false;
  s.summary_age = 60;
  EXPECT_EQ(run_status_of(s), RunStatus::ended);
}

RunSnapshot example() {
  RunSnapshot v;
  v.dir = "runs/a";
  v.state = RunStatus::running;
  v.planned_steps = 400;
  v.ranks = 6;
  v.device = "cpu";
  v.precision = "fp32";
  v.hosts = {"n1", "n2", "n3", "n4", "n5"};
  v.checkpoint_step = 80;
  v.checkpoint_age = 75;
  for (int i = 1; i <= 100; ++i) {
    StepMetrics m = step(i, 0.5, 1.0 / i);
    m.phase_seconds = {};
    m.phase_seconds[std::size_t(Phase::data_wait)] = 0.3;
    m.phase_seconds[std::size_t(Phase::backward)] = 0.2;
    m.skipped = i < 3;
    m.speed_of_light = 0.624;
    v.steps.add(m);
  }
  return v;
}

TEST(Top, ShowsTheFactsOfARun) {
  const Texts lines = describe(example(), {.columns = 100});
  const Texts expected{"runs/a: running, epoch 1",
                       "[" + std::string(15, '#') + std::string(45, '-') + "] step 100 of 400, 25 %, left 2:30",
                       "loss    0.0100 #*+==",
                       "speed   20 samples/s now, 20 on average, speed of light 62 %; 500.0 ms per step; lr 0, "
                       "gradient norm",
                       "step    " + std::string(43, 'd') + std::string(29, 'b'),
                       "        data 60 %  backward 40 %  ",
                       "bound   input-bound in the last steps: 60 % of their time",
                       "saved   step 80, 1:15 ago",
                       "where   6 ranks on n1, n2, n3 and 2 more hosts, cpu, fp32"};
  ASSERT_EQ(lines.size(), expected.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(i == 2 ? lines[i].substr(0, 20) : lines[i], expected[i]) << lines[i];
  EXPECT_TRUE(lines[2].ends_with("_ steps 1 to 100 (log)")) << lines[2];
  EXPECT_EQ(describe(example(), {.columns = 120, .brief = true}), Texts(lines.begin(), lines.begin() + 2));
}

TEST(Top, TheBoundIsWhatTakesMostOfTheTime) {
  RunSnapshot v = example();
  v.steps = {};
  StepMetrics m;
  m.step = 1;
  m.seconds = 1;
  m.phase_seconds[std::size_t(Phase::communication)] = 0.1;
  m.phase_seconds[std::size_t(Phase::backward)] = 0.9;
  v.steps.add(m);
  const Texts lines = describe(v, {.columns = 100});
  EXPECT_NE(std::ranges::find(lines, "bound   compute-bound in the last steps: 90 % of their time"), lines.end());
}

TEST(Top, NoLineIsWiderThanTheTerminal) {
  const auto width = [](const std::string& line) {
    int columns = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\033')
        i = line.find('m', i);
      else
        columns += (static_cast<unsigned char>(line[i]) & 0xc0) != 0x80;
    }
    return columns;
  };
  RunSnapshot v = example();
  v.dir = std::string(30, 'x') + "ä";
  for (const RunStatus state : {RunStatus::absent, RunStatus::starting, RunStatus::running, RunStatus::no_progress,
                                RunStatus::process_lost, RunStatus::ended})
    for (const int columns : {1, 20, 40, 80, 200}) {
      v.state = state;
      for (const std::string& line : describe(v, {.columns = columns, .color = true, .unicode = true}))
        EXPECT_LE(width(line), columns) << line;
    }
}

TEST(Top, ColorsAndUnicodeOnlyOnRequest) {
  const auto has = [](const Texts& lines, const char* what) {
    return std::any_of(lines.begin(), lines.end(), [&](const auto& l) { return l.find(what) != l.npos; });
  };
  EXPECT_FALSE(has(describe(example(), {}), "\033"));
  EXPECT_FALSE(has(describe(example(), {}), "\xe2"));
  EXPECT_TRUE(has(describe(example(), {.color = true}), "\033[32m"));
  EXPECT_TRUE(has(describe(example(), {.unicode = true}), "▁"));
}

TEST(Top, AnEndedRunShowsItsResult) {
  RunSnapshot v = example();
  v.state = RunStatus::ended;
  v.status = "finished";
  v.valid_accuracy = 0.9212;
  v.valid_loss = 0.21;
  v.advice = "data.workers 1 -> 4";
  std::string all;
  for (const auto& line : describe(v, {.columns = 100})) all += line + "\n";
  EXPECT_NE(all.find("runs/a: finished"), all.npos);
  EXPECT_NE(all.find("result  validation loss 0.2100, top-1 92.12 %\nadvice  data.workers 1 -> 4\n"), all.npos) << all;
  EXPECT_EQ(all.find("left"), all.npos);
  EXPECT_EQ(all.find("bound"), all.npos);
}

TEST(Top, AFolderCanBeWatchedBeforeItsRunStarts) {
  const TemporaryFolder folder;
  RunMonitor watch(folder.path.string());
  EXPECT_EQ(watch.poll().state, RunStatus::absent);
  folder.write("run.json",
               R"({"pid": 1, "resumed_at_step": 0, "ranks": [{"host": "elsewhere"}, {"host": "elsewhere"}],
                   "device": "a device", "resolved": {"steps": 50}, "provenance": {"precision": "bf16"}})");
  RunSnapshot v = watch.poll();
  EXPECT_EQ(v.state, RunStatus::starting);
  EXPECT_EQ(v.planned_steps, 50);
  EXPECT_EQ(v.ranks, 2);
  EXPECT_EQ(v.hosts, Texts{"elsewhere"});
  EXPECT_EQ(v.device + v.precision, "a devicebf16");
  const auto line = [](int n) {
    return fmt::format(
        "{{\"step\":{},\"epoch\":0,\"samples\":{},\"loss\":2,\"samples_per_second\":4,\"step_ms\":250}}\n", n, n);
  };
  folder.write("metrics.jsonl", line(1) + line(2) + "nonsense\n");
  folder.write("checkpoints/latest", "step-00000002.h5\n");
  v = watch.poll();
  EXPECT_EQ(v.state, RunStatus::running);
  EXPECT_EQ(v.steps.last().step, 2);
  EXPECT_NEAR(v.steps.all().rate(), 4, 1e-9);
  EXPECT_EQ(v.checkpoint_step, 2);
  EXPECT_EQ(v.valid_step, -1);
  folder.write("validation.jsonl", R"({"step":2,"epoch":0,"samples":2,"loss":0.75,"accuracy":0.625,"top5":1})"
                                   "\n");
  v = watch.poll();
  EXPECT_EQ(v.valid_step, 2);
  std::string shown;
  for (const auto& text : describe(v, {.columns = 100})) shown += text + "\n";
  EXPECT_NE(shown.find("valid   validation loss 0.7500, top-1 62.50 % at step 2\n"), shown.npos) << shown;
  folder.write("metrics.jsonl", line(2));  // resumed from step 1
  EXPECT_EQ(watch.poll().steps.all().steps, 1);
  folder.write("summary.json", R"({"status": "finished", "steps": 50, "valid_accuracy": 0.5, "valid_loss": 1.5,
                                   "findings": [{"advice": "do that"}]})");
  v = watch.poll();
  EXPECT_EQ(v.state, RunStatus::ended);
  EXPECT_EQ(v.status + v.advice, "finisheddo that");
  EXPECT_EQ(v.valid_accuracy, 0.5);
  folder.write("summary.json", "{\"status\": 5, \"findings\": 7, ");  // incomplete, or from another program
  EXPECT_EQ(watch.poll().status, "");
}

}  // namespace top_test
}  // namespace millrace::app
