// Files that change while they are read, and reads that take long: warnings, once for each file.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "data/engines.hpp"
#include "data/fault_epochs.hpp"
#include "data/read/slow_read_monitor.hpp"

namespace millrace {
namespace fault_warnings_test {

using test::Engine;
using test::EpochSeen;
using test::expect_epoch;
using test::Fault;
using test::fault_at;
using test::fault_options;
using test::Faults;
using test::message_of;
using test::portable_engines;
using test::RawSet;
using test::rows;
using test::sample_bytes;
using test::x_offset;

TEST(Faults, AFileThatGrewIsAnError) {
  for (const Engine& engine : portable_engines()) {
    const RawSet set(sample_bytes, {20, 20}, x_offset);
    std::ofstream(set.index.shards[1].path, std::ios::app) << "more";
    const std::string message =
        message_of([&] { expect_epoch(set, engine.make(set.index), fault_options(OnError::stop, 2), 1, 0, 0); });
    EXPECT_NE(message.find("raw1 has changed since the start"), std::string::npos) << engine.name << message;
    EXPECT_NE(message.find("let no program write to it"), std::string::npos) << engine.name << message;
  }
}

// The size stays the same, but the modification time changes, of an open file or of one that is opened later. The file
// is read, and one warning is printed.
TEST(Faults, AFileWrittenToSinceTheStartCausesAWarning) {
  for (const bool open : {false, true})
    for (const Engine& engine : portable_engines()) {
      RawSet set(sample_bytes, {20, 20}, x_offset);
      ShardList stamped;
      for (Shard s : set.index.shards) {
        struct stat status {};
        ASSERT_EQ(::stat(s.path.str().c_str(), &status), 0);
        s.mtime_seconds = std::uint32_t(status.st_mtim.tv_sec);
        stamped.push_back(s);
      }
      set.index.shards = stamped;
      const std::string path = set.index.shards[1].path;
      testing::internal::CaptureStderr();
      const auto source = engine.make(set.index);
      const auto read = [&](std::int64_t id) {
        std::vector<char> x(sample_bytes);
        std::vector<std::int32_t> y(1);
        source->read(std::span(&id, 1), x.data(), y.data());
      };
      if (open) read(25);
      EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << engine.name;
      std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(60));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // files are checked ten times a second
      testing::internal::CaptureStderr();
      read(26);
      read(27);
      const std::string output = testing::internal::GetCapturedStderr();
      EXPECT_NE(output.find("raw1 has been written to since the start"), std::string::npos) << engine.name << output;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      testing::internal::CaptureStderr();
      read(3);
      read(28);
      EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << engine.name;
    }
}

TEST(Faults, ASlowReadCausesOneWarningThatNamesTheFile) {
  for (const Engine& engine : portable_engines()) {
    if (engine.name == "mmap") continue;  // this test cannot delay a page
    const RawSet set(sample_bytes, {20, 20}, x_offset);
    FaultOptions o = fault_options(OnError::stop, 0);
    o.slow_read = 0.1;
    std::string output;
    // Repeated with longer delays, because the monitor is a thread and may be late.
    for (double seconds = 0.3; output.empty() && seconds < 5; seconds *= 3) {
      Fault slow = fault_at(24, 26, 0, 2);
      slow.seconds = seconds;
      const Faults faults({slow});
      testing::internal::CaptureStderr();
      const EpochSeen seen = expect_epoch(set, engine.make(set.index), o, 2, 0, 0);
      output = testing::internal::GetCapturedStderr();
      EXPECT_EQ(seen.rows, rows);
      EXPECT_EQ(seen.faults.files.empty(), output.empty()) << "on a busy CPU, an intact file may be slow too";
      for (const FileFaults& f : seen.faults.files) EXPECT_TRUE(f.slow);
    }
    EXPECT_NE(output.find("raw1 has not returned for "), std::string::npos) << engine.name << output;
    EXPECT_EQ(output.find("raw1 has not returned for "), output.rfind("raw1 has not returned for ")) << output;
  }
}

// During a long step, reads may be in flight that nobody waits for.
TEST(Faults, OnlyAReadThatAWorkerWaitsForIsSlow) {
  const RawSet set(sample_bytes, {20, 20}, x_offset);
  FaultOptions o;
  o.slow_read = 0.02;
  SlowReadMonitor monitor(set.index, o);
  InFlightReads places;
  places.begin(7, set.index.shards[1].first);
  monitor.add(places);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_TRUE(monitor.slow().empty());
  const WorkerReadScope here(places);
  while (monitor.slow().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(monitor.slow(), std::vector<std::int64_t>{1});
  monitor.remove(places);
}

}  // namespace fault_warnings_test
}  // namespace millrace
