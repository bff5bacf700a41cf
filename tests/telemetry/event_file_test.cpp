#include "millrace/telemetry/event_file.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>

#include "millrace/base/error.hpp"
#include "support/event_reader.hpp"

namespace millrace {
namespace event_file_test {

namespace fs = std::filesystem;

class EventFiles : public ::testing::Test {
 protected:
  fs::path folder = fs::temp_directory_path() / fmt::format("millrace_events_{}", ::getpid());
  void SetUp() override { fs::remove_all(folder); }
  void TearDown() override { fs::remove_all(folder); }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }
  // Writes a scalar for each of the steps [first, last].
  void write(std::int64_t first, std::int64_t last, double wall_time) const {
    EventFile events(folder, first);
    for (std::int64_t step = first; step <= last; ++step)
      events.add(step, wall_time + double(step), std::vector<Scalar>{{"a/b", 100 * wall_time + double(step)}});
  }
};

TEST_F(EventFiles, AreReadByAnIndependentDecoder) {
  const std::string longer(300, 'x');  // its length takes two bytes
  {
    EventFile events(folder, 1);
    events.add(1, 1.7e9 + 0.25, std::vector<Scalar>{{"train/loss", 2.5}, {"lr", 1e-3}, {longer, -7}});
    events.add(1'000'000'000'000, 1.7e9 + 1, std::vector<Scalar>{{"train/loss", std::nan("")}, {"lr", INFINITY}});
  }
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(files()[0].rfind("events.out.tfevents.1700000000.", 0), 0u) << files()[0];
  const auto events = test::read_events(folder / files()[0]);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].step, 0);
  EXPECT_TRUE(events[1].start);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].wall_time, 1.7e9 + 0.25);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"train/loss", 2.5f}, {"lr", 1e-3f}, {longer, -7.f}}));
  EXPECT_EQ(events[3].step, 1'000'000'000'000);
  EXPECT_TRUE(std::isnan(events[3].scalars.at("train/loss")));
  EXPECT_TRUE(std::isinf(events[3].scalars.at("lr")));
}

TEST_F(EventFiles, AResumedRunShowsNoStepTwice) {
  write(1, 9, 2000);
  write(6, 8, 1000);  // from a checkpoint of step 5, on a host whose clock is behind
  write(7, 12, 1000);
  EXPECT_EQ(files().size(), 3u);
  const auto shown = test::shown_by_tensorboard(folder).at("a/b");
  ASSERT_EQ(shown.size(), 12u);
  for (std::int64_t step = 1; step <= 12; ++step) {
    const auto& point = shown[std::size_t(step - 1)];
    EXPECT_EQ(point.step, step);
    EXPECT_EQ(point.value, float((step <= 5 ? 200000 : 100000) + step));
  }
  write(1, 2, 3000);  // a new training
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(test::shown_by_tensorboard(folder).at("a/b").size(), 2u);
}

TEST_F(EventFiles, ALaunchWithoutStepsLeavesNoFile) {
  write(1, 3, 1000);
  { EventFile events(folder, 4); }
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(EventFiles, EventsAreWrittenSoon) {
  EventFile events(folder, 1);
  const std::vector<Scalar> one{{"loss", 1}};
  events.add(1, 100, one);
  events.add(2, 101, one);
  EXPECT_FALSE(fs::exists(folder));
  events.add(3, 102, one);
  EXPECT_EQ(test::read_events(folder / files().at(0)).size(), 5u);
  for (int step = 4; step < 2000; ++step) events.add(step, 102, one);
  EXPECT_GT(test::read_events(folder / files().at(0)).size(), 1000u);
}

TEST_F(EventFiles, AFolderThatCannotBeCreatedIsReportedOnce) {
  fs::create_directories(folder);
  std::ofstream(folder / "file") << "x";
  ::testing::internal::CaptureStderr();
  {
    EventFile events(folder / "file" / "tensorboard", 1);
    for (int step = 1; step < 9; ++step) events.add(step, 10 * step, std::vector<Scalar>{{"loss", 1}});
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("training goes on without events for TensorBoard"), said.npos) << said;
}

TEST_F(EventFiles, AFailedWriteIsReportedOnceAndStopsWriting) {
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  // The limit is below the size that the file then has, and above the size of the captured output.
  const rlimit little{4096, before.rlim_max};
  ::testing::internal::CaptureStderr();
  {
    EventFile events(folder, 1);
    for (int step = 1; step < 200; ++step) events.add(step, 10, std::vector<Scalar>{{"loss", 1}});
    events.flush();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
    for (int step = 200; step < 230; ++step) events.add(step, 10 * step, std::vector<Scalar>{{"loss", 1}});
    ::setrlimit(RLIMIT_FSIZE, &before);
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("cannot write"), said.npos) << said;
}

}  // namespace event_file_test
}  // namespace millrace
