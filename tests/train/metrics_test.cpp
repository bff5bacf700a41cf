// Lines of metrics.jsonl: their values are read back, and a full disk truncates none.
#include "millrace/runs/metrics.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <thread>

#include "millrace/base/files.hpp"
#include "millrace/runs/step_history.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"
#include "train/logging/run_files.hpp"

namespace millrace {
namespace metrics_test {

namespace fs = std::filesystem;

TEST(Metrics, LinesReadBack) {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "metrics.jsonl";
  StepMetrics m;
  m.step = 12;
  m.epoch = 3;
  m.samples = 1'000'000'000'000;
  m.loss = 0.1;
  m.lr = 1e-300;
  m.grad_norm = NAN;
  m.loss_scale = 65536;
  m.skipped = true;
  m.samples_per_second = 1234.5;
  m.seconds = 0.25;
  m.speed_of_light = 0.625;
  m.unread_samples = 7;
  m.phase_seconds[std::size_t(Phase::data_wait)] = 0.125;
  m.phase_seconds[std::size_t(Phase::other)] = 0.0625;
  { MetricsFile(path, 0).write(m); }
  std::string line = read_file(path);
  ASSERT_EQ(line.back(), '\n');
  line.pop_back();
  const auto read = parse_metrics(line);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->step, 12);
  EXPECT_EQ(read->epoch, 3);
  EXPECT_EQ(read->samples, 1'000'000'000'000);
  EXPECT_EQ(read->loss, 0.1);
  EXPECT_EQ(read->lr, 1e-300);
  EXPECT_EQ(read->loss_scale, 65536);
  EXPECT_TRUE(std::isnan(read->grad_norm));
  EXPECT_TRUE(read->skipped);
  EXPECT_EQ(read->unread_samples, 7);
  EXPECT_EQ(read->samples_per_second, 1234.5);
  EXPECT_EQ(read->seconds, 0.25);
  EXPECT_EQ(read->speed_of_light, 0.625);
  EXPECT_EQ(read->phase_seconds, m.phase_seconds);
  for (const std::string& other :
       {std::string(), line.substr(1), line.substr(0, line.size() - 1), std::string("{\"loss\":1}")})
    EXPECT_FALSE(parse_metrics(other)) << other;
}

TEST(MetricsHistory, TheSpeedOfLightIsWeightedByTime) {
  StepHistory h;
  StepMetrics m;
  for (m.step = 1; m.step <= 2; ++m.step) {
    m.seconds = m.step == 1 ? 1 : 3;
    m.speed_of_light = m.step == 1 ? 0.8 : 0.4;
    h.add(m);
  }
  EXPECT_NEAR(h.all().speed_of_light(), 0.5, 1e-12);
  h.clear();
  m.speed_of_light = 0;  // of an older version
  h.add(m);
  EXPECT_EQ(h.all().speed_of_light(), 0);
}

// A run must neither wait for a reader of a named pipe, nor end in the middle because a device takes nothing.
TEST(Metrics, OnlyARegularFileIsWritten) {
  const test::TemporaryFolder folder;
  ::mkfifo((folder / "pipe").c_str(), 0600);
  fs::create_symlink("/dev/full", folder.path / "full");
  test::expect_error(Exit::data, "pipe (it is a named pipe, not a file)", [&] { MetricsFile(folder / "pipe", 0); });
  test::expect_error(Exit::data, "full (it is a device, not a file)", [&] { MetricsFile(folder / "full", 0); });
}

// Uses a small file system in a mount namespace of this thread, so that no other process is affected.
TEST(Metrics, OnAFullDiskLinesWaitInMemoryAndNoneIsTruncated) {
  constexpr int before = 30, meanwhile = 20000, after = 10;
  const test::TemporaryFolder folder;
  const fs::path path = folder.path / "metrics.jsonl";
  std::string text, said;
  const auto write = [&] {
    const auto mount_disk = [&](unsigned long flags, const char* size) {
      return ::mount("none", folder.path.c_str(), "tmpfs", flags, size) == 0;
    };
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        !mount_disk(0, "size=64k"))
      return;
    ::testing::internal::CaptureStderr();
    {
      MetricsFile file(path, 0);
      StepMetrics m;
      const auto steps = [&](int count) {
        for (int i = 0; i < count; ++i) {
          ++m.step;
          file.write(m);
        }
      };
      steps(before + meanwhile);
      if (mount_disk(MS_REMOUNT, "size=64m")) steps(after);
    }
    said = ::testing::internal::GetCapturedStderr();
    text = read_file(path);
  };
  std::thread(write).join();
  if (text.empty()) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_LT(text.size(), (4u << 20) + (70u << 10));
  EXPECT_GT(text.size(), 4u << 20);
  std::istringstream in(text);
  std::vector<std::int64_t> steps;
  for (std::string line; std::getline(in, line);) {
    const auto m = parse_metrics(line);
    ASSERT_TRUE(m) << line;
    steps.push_back(m->step);
  }
  const std::size_t waited = steps.size() - after;
  for (std::size_t i = 0; i < waited; ++i) ASSERT_EQ(steps[i], std::int64_t(i) + 1);
  for (std::size_t i = 0; i < after; ++i) EXPECT_EQ(steps[waited + i], std::int64_t(before + meanwhile + i) + 1);
  const auto times = [&](const std::string& what) {
    int n = 0;
    for (std::size_t at = 0; (at = said.find(what, at)) != said.npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(times("is full. training goes on and the lines wait in memory (up to 4 MiB; later ones are left out)"), 1)
      << said;
  EXPECT_EQ(times(fmt::format(" lacks {} lines that were left out", before + meanwhile - waited)), 1) << said;
}

}  // namespace metrics_test
}  // namespace millrace
