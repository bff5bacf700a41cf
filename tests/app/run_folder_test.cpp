// RunFolder reads complete, half-written and foreign run folders.
#include "millrace/runs/run_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "millrace/base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace run_folder_test {

struct Fixture {
  test::TemporaryFolder temporary;
  RunFolder folder{temporary.path};
  void write(const char* name, const std::string& text) const { std::ofstream(temporary / name) << text; }
};

const char* const record_text =
    R"({"started": "2026-03-01T10:00:00Z", "pid": 7, "resumed_at_step": 3, "device": "a CPU", "collective": "MPI",
        "ranks": [{"host": "n1", "placement": "cpus 0"}, {"host": "n2", "placement": "cpus 1"}],
        "resolved": {"steps": 9, "workers": 2}, "provenance": {"precision": "bf16"}, "libraries": {"mpi": "some MPI"},
        "train": {"rows": 60, "sample": "4x4", "dtype": "fp32", "files": 1}, "valid": null})";

TEST(RunFolder, ReadsTheRecordOfALaunch) {
  Fixture f;
  f.write("run.json", record_text);
  const RunRecord record = f.folder.record();
  EXPECT_EQ(record.started, "2026-03-01T10:00:00Z");
  EXPECT_EQ(record.pid, 7);
  EXPECT_EQ(record.device + "/" + record.collective + "/" + record.precision, "a CPU/MPI/bf16");
  EXPECT_EQ(record.resumed_at_step, 3);
  EXPECT_EQ(record.planned_steps, 9);
  ASSERT_EQ(record.ranks.size(), 2u);
  EXPECT_EQ(record.ranks[1].first + record.ranks[1].second, "n2cpus 1");
  const std::vector<std::pair<std::string, std::string>> facts{
      {"training data", "60 samples of 4x4 fp32 in 1 file"}, {"steps", "9"}, {"workers", "2"}, {"mpi", "some MPI"}};
  EXPECT_EQ(record.facts, facts);
}

TEST(RunFolder, AMissingFieldIsAnErrorOnlyWhenReadStrictly) {
  Fixture f;
  f.write("run.json", R"({"resolved": {"steps": 9}, "ranks": [{"host": "n1"}, 5], "device": 5})");
  EXPECT_NE(
      test::message_of([&] { f.folder.record(); }).find("run.json is damaged, or of another version (key 'started'"),
      std::string::npos);
  const auto record = f.folder.try_record();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->planned_steps, 9);
  EXPECT_EQ(record->device, "");
  EXPECT_EQ(record->ranks.size(), 1u);
  f.write("summary.json", R"({"status": 5, "steps": 2, "findings": [{"advice": "do that"}, 7], "hints": null})");
  EXPECT_NE(test::message_of([&] { f.folder.summary(); }).find("summary.json is damaged"), std::string::npos);
  const auto summary = f.folder.try_summary();
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->status, "");
  EXPECT_EQ(summary->steps, 2);
  EXPECT_FALSE(summary->valid_loss);
  ASSERT_EQ(summary->findings.size(), 1u);
  EXPECT_EQ(summary->findings[0].advice, "do that");
}

TEST(RunFolder, MissingAndHalfWrittenFilesCountAsAbsentWhenReadLeniently) {
  Fixture f;
  for (const char* text : {"", "{", "[]", "{}", "7"}) {
    f.write("run.json", text);
    f.write("summary.json", text);
    EXPECT_FALSE(f.folder.try_record()) << text;
    EXPECT_FALSE(f.folder.try_summary()) << text;
  }
  std::filesystem::remove(f.folder.record_file());
  std::filesystem::remove(f.folder.summary_file());
  EXPECT_FALSE(f.folder.try_record());
  EXPECT_FALSE(f.folder.summary());
  EXPECT_TRUE(f.folder.layers().empty());
  EXPECT_TRUE(f.folder.trace().empty());
  EXPECT_FALSE(f.folder.try_latest_checkpoint_step());
  EXPECT_NE(test::message_of([&] { f.folder.require_run(); }).find("run.json is missing"), std::string::npos);
}

TEST(RunFolder, NamesTheLatestCheckpoint) {
  Fixture f;
  std::filesystem::create_directories(f.temporary.path / "checkpoints");
  f.write("checkpoints/latest", "step-00000042.h5\n");
  EXPECT_EQ(f.folder.try_latest_checkpoint_step(), 42);
  f.write("checkpoints/latest", "");
  EXPECT_FALSE(f.folder.try_latest_checkpoint_step());
}

TEST(RunFolder, TakesItsNameFromThePath) {
  EXPECT_EQ(RunFolder("runs/mine").name(), "mine");
  EXPECT_EQ(RunFolder("runs/mine/").name(), "mine");
  EXPECT_EQ(RunFolder(".").name(), std::filesystem::current_path().filename().string());
}

TEST(RunFolder, IsInUseWhileItsLockIsHeld) {
  Fixture f;
  EXPECT_FALSE(f.folder.in_use());
  f.write("lock", "");
  EXPECT_FALSE(f.folder.in_use());
  const int file = ::open((f.temporary / "lock").c_str(), O_RDWR);
  ASSERT_EQ(::flock(file, LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(f.folder.in_use());
  ::close(file);
  EXPECT_FALSE(f.folder.in_use());
}

TEST(RunFolder, TheProcessIsCheckedOnItsOwnHostOnly) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  RunRecord record;
  record.pid = ::getpid();
  EXPECT_FALSE(process_exists(record).has_value()) << "no rank is recorded";
  record.ranks = {{host, ""}};
  EXPECT_EQ(process_exists(record), true);
  record.pid = 1 << 30;  // above the kernel's largest process id
  EXPECT_EQ(process_exists(record), false);
  record.ranks = {{"another host", ""}};
  EXPECT_FALSE(process_exists(record).has_value());
}

TEST(RunFolder, AnAccountIsParsedFromASummaryOnly) {
  Fixture f;
  EXPECT_NE(test::message_of([] {
              parse_account(R"({"steps": 1})", "a/summary.json");
            }).find("a/summary.json: this is not the summary of a run ("),
            std::string::npos);
  EXPECT_TRUE(parse_account(R"({"account": {"ranks": []}})", "summary.json").ranks.empty());
}

}  // namespace run_folder_test
}  // namespace millrace
