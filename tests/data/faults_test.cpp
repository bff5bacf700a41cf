// Read faults of each kind, below the loader. The read is retried, or the sample is skipped, or the run ends with a
// message that names the file. Nothing else changes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>

#include "data/open/wrappers.hpp"
#include "data/raw_set.hpp"
#include "data/read/slow_read_monitor.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/async_reads.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "support/faulty_files.hpp"
#include "support/host_device.hpp"

namespace millrace {
namespace {

using test::Fault;
using test::Faults;
using test::message_of;
using test::RawSet;

constexpr std::int64_t sample_bytes = 5000, rows = 40, global = 16, micro = 4;
constexpr std::uint64_t x_offset = 4096 - 4 * 20;  // so that, after 20 labels, the first sample begins a page

FaultOptions options(OnError on_error, int retries) {
  FaultOptions o;
  o.on_error = on_error;
  o.retries = retries;
  o.retry_delay = 1e-3;
  return o;
}

struct Engine {
  const char* name;
  std::function<std::unique_ptr<Source>(const ShardIndex&)> make;
};
// All engines. io_uring is left out: its results are like those of the threads.
std::vector<Engine> engines() {
  return {{"direct", [](const ShardIndex& d) { return make_direct_source(d, ""); }},
          {"mmap", [](const ShardIndex& d) { return make_mmap_source(d, ""); }},
          {"uring",
           [](const ShardIndex& d) { return make_uring_source(d, "", [](auto) { return make_pooled_reads(3); }); }}};
}

// Bytes of samples [first, last) of the second shard.
Fault fault_at(std::int64_t first, std::int64_t last, int error, int times = 1 << 30) {
  const std::uint64_t begin = x_offset + 4 * 20;
  return {"raw1", begin + std::uint64_t(first - 20) * sample_bytes, begin + std::uint64_t(last - 20) * sample_bytes,
          error, times};
}

struct Seen {
  std::int64_t rows = 0, zeros = 0, skipped = 0;
  FaultStats faults;
};

// Reads one epoch of one rank. Expects the samples that the sampler yields, except that those in [bad, bad_end) are
// zeros without a label.
Seen expect_epoch(const RawSet& set, std::unique_ptr<Source> engine, const FaultOptions& o, int workers,
                  std::int64_t bad, std::int64_t bad_end, int rank = 0, int ranks = 1) {
  test::HostDevice device;
  const auto source = make_retrying_source(std::move(engine), set.index, o);
  const Sampler sampler(rows, global, micro, 5, true);
  std::vector<MicroBatch> items, share;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    sampler.share(0, step, MicrobatchRange::even(rank, ranks), share);
    items.insert(items.end(), share.begin(), share.end());
  }
  Loader loader(device, *source, set.index, sampler, {workers, 3, micro},
                [&, next = std::size_t(0)]() mutable -> std::optional<MicroBatch> {
                  return next < items.size() ? std::optional(items[next++]) : std::nullopt;
                });
  Seen seen;
  const std::string none(sample_bytes, '\0');
  while (const Batch* b = loader.next()) {
    std::vector<std::int64_t> ids(std::size_t(b->item.rows));
    sampler.ids(b->item, ids.data());
    seen.skipped += b->skipped;
    for (std::size_t r = 0; r < ids.size(); ++r, ++seen.rows) {
      EXPECT_EQ(b->ids.as<std::int64_t>()[r], ids[r]);
      const char* x = b->x.as<char>() + r * sample_bytes;
      const std::int32_t* y = b->y.as<std::int32_t>() + r;
      if (ids[r] < bad || ids[r] >= bad_end) {
        set.expect({&ids[r], 1}, x, y, source->describe());
        continue;
      }
      ++seen.zeros;
      EXPECT_EQ(*y, -1) << ids[r];
      EXPECT_EQ(std::memcmp(x, none.data(), sample_bytes), 0) << ids[r];
    }
  }
  seen.faults = source->faults();
  return seen;
}

// ESTALE is tested without workers. With two, a reopened mapping could be read before faulty_files.cpp removes its
// pages.
TEST(Faults, TransientErrorsAreRetriedAndChangeNothing) {
  for (const Engine& engine : engines())
    for (const int error : {EIO, EAGAIN, ETIMEDOUT, EREMOTEIO, ESTALE}) {
      SCOPED_TRACE(cat(engine.name, ", ", std::strerror(error)));
      const RawSet set(sample_bytes, {20, 20}, x_offset);
      const Faults faults({fault_at(24, 26, error, 2)});
      const Seen seen =
          expect_epoch(set, engine.make(set.index), options(OnError::stop, 3), error == ESTALE ? 0 : 2, 0, 0);
      EXPECT_EQ(seen.rows, rows);
      EXPECT_EQ(seen.skipped, 0);
      EXPECT_EQ(seen.faults.skipped_samples, 0u);
      // The first two reads may be those of two workers. Then both succeed at once when they read again.
      EXPECT_LE(seen.faults.files.size(), 1u);
      for (const FileFaults& f : seen.faults.files) EXPECT_NE(f.path.find("raw1"), std::string::npos);
      if (error == ESTALE && engine.name != std::string("uring")) {  // it opens the files twice, once for y
        EXPECT_GE(seen.faults.retries, 1u);
      }
    }
}

TEST(Faults, PermanentErrorsEndTheRunAndNameFileSampleAndRetries) {
  for (const Engine& engine : engines()) {
    const RawSet set(sample_bytes, {20, 20}, x_offset);
    const Faults faults({fault_at(25, 26, EIO)});
    const std::string message =
        message_of([&] { expect_epoch(set, engine.make(set.index), options(OnError::stop, 2), 1, 0, 0); });
    EXPECT_NE(message.find("cannot read sample 2"), std::string::npos) << engine.name << message;
    EXPECT_NE(message.find("raw1 (Input/output error), even after data.retries = 2"), std::string::npos)
        << engine.name << message;
  }
}

TEST(Faults, SkippedSamplesAreZerosAndAllOthersAreUnchanged) {
  for (const Engine& engine : engines())
    for (const int ranks : {1, 3})
      for (const int workers : {0, 2}) {
        SCOPED_TRACE(cat(engine.name, ", ", ranks, " ranks, ", workers, " workers"));
        const RawSet set(sample_bytes, {20, 20}, x_offset);
        // Samples 20 to 23 are bytes 0 to 20000 of x. Engines that read pages also fail on sample 24, which shares one.
        const Faults faults({{"raw1", 4096, 4096 + 20000, EIO}});
        const bool by_page = engine.name == std::string("mmap") || engine.name == std::string("uring");
        Seen all;
        for (int rank = 0; rank < ranks; ++rank) {
          const Seen one = expect_epoch(set, engine.make(set.index), options(OnError::skip, 0), workers, 20,
                                        by_page ? 25 : 24, rank, ranks);
          EXPECT_EQ(one.skipped, one.zeros);
          EXPECT_EQ(one.faults.skipped_samples, std::uint64_t(one.zeros));
          all.rows += one.rows;
          all.zeros += one.zeros;
        }
        EXPECT_EQ(all.rows, rows);
        EXPECT_EQ(all.zeros, by_page ? 5 : 4);
      }
}

TEST(Faults, ExactlyTheSamplesOfMissingTruncatedAndUnreadableFilesAreSkipped) {
  for (const Engine& engine : engines()) {
    SCOPED_TRACE(engine.name);
    const RawSet set(sample_bytes, {20, 20}, x_offset);
    const std::string path = set.index.shards[1].path;
    std::filesystem::resize_file(path, set.index.shards[1].x_offset + 15 * sample_bytes);
    Seen seen = expect_epoch(set, engine.make(set.index), options(OnError::skip, 2), 2, 35, 40);
    EXPECT_EQ(seen.zeros, 5);
    ASSERT_EQ(seen.faults.files.size(), 1u);
    EXPECT_NE(seen.faults.files[0].error.find("truncated while in use"), std::string::npos)
        << seen.faults.files[0].error;
    EXPECT_EQ(seen.faults.retries, 0u);  // the error is permanent
    {
      const Faults faults({{.file = "raw0", .error = EACCES, .opening = true}, {.file = "raw1", .error = EIO}});
      seen = expect_epoch(set, engine.make(set.index), options(OnError::skip, 0), 2, 0, 40);
      EXPECT_EQ(seen.zeros, rows);
    }
    std::filesystem::remove(path);
    seen = expect_epoch(set, engine.make(set.index), options(OnError::skip, 2), 0, 20, 40);
    EXPECT_EQ(seen.faults.files[0].skipped_samples, 20u);
    EXPECT_NE(seen.faults.files[0].error.find("cannot open " + path), std::string::npos) << seen.faults.files[0].error;
  }
}

TEST(Faults, AFileThatGrewIsAnError) {
  for (const Engine& engine : engines()) {
    const RawSet set(sample_bytes, {20, 20}, x_offset);
    std::ofstream(set.index.shards[1].path, std::ios::app) << "more";
    const std::string message =
        message_of([&] { expect_epoch(set, engine.make(set.index), options(OnError::stop, 2), 1, 0, 0); });
    EXPECT_NE(message.find("raw1 has changed since the start"), std::string::npos) << engine.name << message;
    EXPECT_NE(message.find("let no program write to it"), std::string::npos) << engine.name << message;
  }
}

// The size stays the same, but the modification time changes, of an open file or of one that is opened later. The file
// is read, and one warning is printed.
TEST(Faults, AFileWrittenToSinceTheStartCausesAWarning) {
  for (const bool open : {false, true})
    for (const Engine& engine : engines()) {
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

TEST(Faults, TooManyOpenFilesIsNotAFaultOfTheFile) {
  const RawSet set(sample_bytes, {20, 20}, x_offset);
  const Faults faults({{.file = "raw1", .error = EMFILE, .opening = true}});
  const std::string message =
      message_of([&] { expect_epoch(set, make_direct_source(set.index, ""), options(OnError::skip, 2), 1, 0, 0); });
  EXPECT_NE(message.find("raise ulimit -n"), std::string::npos) << message;
}

// Chunks are read with the engine `direct` and with the HDF5 library.
TEST(Faults, OnlyTheRowsOfADamagedChunkAreSkipped) {
  const test::TemporaryFolder folder;
  const auto world = solo_world();
  std::vector<std::uint8_t> x(30 * 600);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::uint8_t(i * i / 7 + i / 600);
  std::vector<std::int32_t> y(30);
  std::iota(y.begin(), y.end(), 0);
  test::write_file(folder / "a.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {30, 600}, x.data(), {5, 600}},
                                     {"y", H5T_STD_I32LE, H5T_NATIVE_INT32, {30}, y.data()}});
  const ShardIndex d = index_shards(*world, {.paths = {folder / "a.h5"}});
  const auto& chunk = d.shards[0].x_chunks->chunks[2];  // rows 10 to 14
  {
    std::fstream file(folder / "a.h5", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(std::streamoff(chunk.offset + chunk.bytes / 2));
    file << "no such bytes were ever compressed";
  }
  for (const bool hdf5 : {false, true}) {
    const auto source = make_source(*world, d, hdf5 ? Reader::mpio : Reader::direct, options(OnError::skip, 1));
    const auto reads = source->make_read_queue({});
    std::vector<std::int64_t> ids(30);
    std::iota(ids.rbegin(), ids.rend(), 0);
    std::vector<std::uint8_t> to(x.size());
    std::vector<std::int32_t> labels(30);
    reads->begin(ids, to.data(), labels.data());
    reads->finish();
    EXPECT_EQ(reads->skipped(), 5) << hdf5;
    for (std::size_t r = 0; r < 30; ++r) {
      const bool bad = ids[r] >= 10 && ids[r] < 15;
      EXPECT_EQ(labels[r], bad ? -1 : std::int32_t(ids[r])) << hdf5;
      for (std::size_t i = 0; i < 600; ++i)
        ASSERT_EQ(to[r * 600 + i], bad ? 0 : x[std::size_t(ids[r]) * 600 + i]) << hdf5 << " sample " << ids[r];
    }
    EXPECT_NE(source->faults().files.at(0).error.find("a.h5"), std::string::npos);
  }
  ShardIndex measured = d;
  measure_statistics(*world, measured, rows, options(OnError::skip, 1));
  for (std::size_t c = 0; c < 600; ++c) {
    double sum = 0;
    for (std::size_t r = 0; r < 30; ++r) sum += r >= 10 && r < 15 ? 0 : x[r * 600 + c];
    EXPECT_NEAR(measured.values.mean.at(c), sum / 25, 1e-9);
  }
  EXPECT_NE(message_of([&] { measure_statistics(*world, measured); }).find("a.h5"), std::string::npos);
}

TEST(Faults, ASlowReadCausesOneWarningThatNamesTheFile) {
  for (const Engine& engine : engines()) {
    if (engine.name == std::string("mmap")) continue;  // this test cannot delay a page
    const RawSet set(sample_bytes, {20, 20}, x_offset);
    FaultOptions o = options(OnError::stop, 0);
    o.slow_read = 0.1;
    std::string output;
    // Repeated with longer delays, because the monitor is a thread and may be late.
    for (double seconds = 0.3; output.empty() && seconds < 5; seconds *= 3) {
      Fault slow = fault_at(24, 26, 0, 2);
      slow.seconds = seconds;
      const Faults faults({slow});
      testing::internal::CaptureStderr();
      const Seen seen = expect_epoch(set, engine.make(set.index), o, 2, 0, 0);
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

TEST(Faults, DestroyingALoaderDoesNotWaitForRetries) {
  const RawSet set(sample_bytes, {20, 20}, x_offset);
  const Faults faults({{.file = "raw", .error = EIO}});
  FaultOptions o = options(OnError::stop, 100);  // would take minutes
  o.retry_delay = 5;
  test::HostDevice device;
  const auto source = make_retrying_source(make_direct_source(set.index, ""), set.index, o);
  const Sampler sampler(rows, global, micro, 5, true);
  const Loader loader(device, *source, set.index, sampler, {2, 3, micro}, [] { return MicroBatch{0, 0, 0, micro}; });
}

}  // namespace
}  // namespace millrace
