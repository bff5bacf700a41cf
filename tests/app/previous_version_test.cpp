// The program reads shards, checkpoints and run folders of earlier versions. tests/fixtures/2026-11 was written before
// the configuration keys were renamed, tests/fixtures/2026-11-25 before checkpoints held the model.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/top/top_view.hpp"
#include "millrace/report/report.hpp"
#include "millrace/runs/run.hpp"
#include "millrace/runs/run_monitor.hpp"
#include "support/temporary_folder.hpp"

namespace millrace::app {
namespace previous_version_test {

namespace fs = std::filesystem;

// A temporary copy of the fixture, and the output of commands that run on it.
struct PreviousVersion : test::TemporaryFolder, testing::Test {
  const std::string run = *this / "run";
  PreviousVersion() {
    fs::copy(fs::path(MILLRACE_SOURCE_DIR) / "tests/fixtures/2026-11", path,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  // The run's own configuration, with the paths of the copy.
  Arguments with_config(const Arguments& more = {}) const {
    Arguments out{"-c", run + "/config.cfg", "--run.dir", run, "--run.device", "cpu"};
    for (const char* split : {"train", "valid"})
      out.insert(out.end(), {fmt::format("--data.{}", split), *this / fmt::format("shards/{}-*.h5", split)});
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  std::string output(Exit (*command)(World&, const Arguments&), const Arguments& arguments, int ranks = 1) const {
    testing::internal::CaptureStdout();
    try {
      run_thread_world(ranks, [&](World& world) { EXPECT_EQ(command(world, arguments), Exit::ok); });
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    return testing::internal::GetCapturedStdout();
  }
  std::vector<double> losses() const {
    std::vector<double> out;
    std::ifstream in(run + "/metrics.jsonl");
    for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line).at("loss"));
    return out;
  }
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST_F(PreviousVersion, TheNewestCheckpointIsResumed) {
  const std::vector<double> before = losses();
  ASSERT_EQ(before.size(), 6u);
  const std::string out = output(train_command, with_config({"--train.steps", "8"}), 2);
  EXPECT_TRUE(contains(out, "resumed at step 6 of 8")) << out;
  const std::vector<double> after = losses();
  ASSERT_EQ(after.size(), 8u);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST_F(PreviousVersion, AResumedRunComputesTheLossesOfThatVersion) {
  const std::vector<double> before = losses();
  fs::remove(run + "/checkpoints/step-00000006.h5");
  std::ofstream(run + "/checkpoints/latest") << "step-00000004.h5\n";
  output(train_command, with_config(), 2);
  const std::vector<double> after = losses();
  ASSERT_EQ(after.size(), 6u);
  // The losses are not equal bit for bit, because another CPU may round differently.
  for (std::size_t step = 0; step < 6; ++step) EXPECT_NEAR(after[step], before[step], 1e-5) << step;
}

TEST_F(PreviousVersion, ACheckpointIsEvaluated) {
  const std::string out = output(eval_command, with_config());
  EXPECT_TRUE(contains(out, "1.0589")) << out;
  EXPECT_TRUE(contains(out, "41.67 %")) << out;
}

// Of format 2, in which the parameters of model.layers were called by the number of their line.
TEST_F(PreviousVersion, LayersWithTheNamesOfThatVersionAreFound) {
  const std::string file = std::string(MILLRACE_SOURCE_DIR) + "/tests/fixtures/2026-11-25/step-00000008.h5";
  EXPECT_TRUE(contains(output(inspect_command, {"--tensors", file}), "/parameters/4.conv.weight"));
  const std::string out = output(eval_command, {file, "--run.device", "cpu"});
  EXPECT_TRUE(contains(out, "1.0858")) << out;
  EXPECT_TRUE(contains(out, "40.00 %")) << out;
}

TEST_F(PreviousVersion, ShardsAndCheckpointsAreInspected) {
  const std::string shards = output(inspect_command, {*this / "shards"});
  EXPECT_TRUE(contains(shards, "60 rows in 3 files")) << shards;
  EXPECT_TRUE(contains(shards, "3 classes")) << shards;
  const std::string checkpoints = output(inspect_command, {run});
  EXPECT_TRUE(contains(checkpoints, "step-00000004.h5")) << checkpoints;
  EXPECT_TRUE(contains(checkpoints, "step-00000006.h5")) << checkpoints;
}

TEST_F(PreviousVersion, AReportIsMadeOfItsRun) {
  const millrace::Run found = read_run(run);
  EXPECT_EQ(found.record.planned_steps, 6);
  EXPECT_EQ(found.record.ranks.size(), 2u);
  EXPECT_EQ(found.curves.last, 6);
  EXPECT_EQ(found.validations.size(), 2u);
  EXPECT_EQ(found.trace.size(), 2u);
  EXPECT_FALSE(found.outdated);
  ASSERT_TRUE(found.summary);
  EXPECT_EQ(found.summary->status, "finished");
  EXPECT_EQ(found.summary->account.ranks.size(), 2u);
  EXPECT_EQ(found.summary->hints.size(), 1u);
  const std::string page = report_page({run});
  EXPECT_TRUE(contains(page, "41.67 %"));
  EXPECT_TRUE(contains(page, "node1"));
}

TEST_F(PreviousVersion, TopShowsItsRun) {
  RunMonitor monitor(run);
  const RunSnapshot& seen = monitor.poll();
  EXPECT_EQ(seen.state, RunStatus::ended);
  EXPECT_EQ(seen.status, "finished");
  EXPECT_EQ(seen.planned_steps, 6);
  EXPECT_EQ(seen.precision, "fp32");
  EXPECT_EQ(seen.checkpoint_step, 6);
  EXPECT_EQ(seen.valid_step, 6);
  EXPECT_NEAR(seen.valid_accuracy, 5 / 12.0, 1e-6);
  EXPECT_EQ(seen.steps.last().step, 6);
  EXPECT_EQ(describe(seen, {.columns = 100}).front(), run + ": finished, epoch 2");
}

TEST_F(PreviousVersion, ItsScalingIsPredicted) {
  const std::string out = output(scaling_command, {run, "--ranks", "2,8", "--link", "1Gb/s", "--json"});
  const auto forecast = nlohmann::json::parse(out, nullptr, false);
  ASSERT_TRUE(forecast.is_object()) << out;
}

}  // namespace previous_version_test
}  // namespace millrace::app
