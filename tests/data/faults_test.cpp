// Read faults of each kind, below the loader. The read is retried, or the sample is skipped, or the run ends with a
// message that names the file. Nothing else changes.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "data/engines.hpp"
#include "data/fault_epochs.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace millrace {
namespace faults_test {

using test::Engine;
using test::EpochSeen;
using test::expect_epoch;
using test::fault_at;
using test::fault_options;
using test::Faults;
using test::global;
using test::message_of;
using test::micro;
using test::portable_engines;
using test::RawSet;
using test::rows;
using test::sample_bytes;
using test::x_offset;

// ESTALE is tested without workers. With two, a reopened mapping could be read before faulty_files.cpp removes its
// pages.
TEST(Faults, TransientErrorsAreRetriedAndChangeNothing) {
  for (const Engine& engine : portable_engines())
    for (const int error : {EIO, EAGAIN, ETIMEDOUT, EREMOTEIO, ESTALE}) {
      SCOPED_TRACE(fmt::format("{}, {}", engine.name, std::strerror(error)));
      const RawSet set(sample_bytes, {20, 20}, x_offset);
      const Faults faults({fault_at(24, 26, error, 2)});
      const EpochSeen seen =
          expect_epoch(set, engine.make(set.index), fault_options(OnError::stop, 3), error == ESTALE ? 0 : 2, 0, 0);
      EXPECT_EQ(seen.rows, rows);
      EXPECT_EQ(seen.skipped, 0);
      EXPECT_EQ(seen.faults.skipped_samples, 0u);
      // The first two reads may be those of two workers. Then both succeed at once when they read again.
      EXPECT_LE(seen.faults.files.size(), 1u);
      for (const FileFaults& f : seen.faults.files) EXPECT_NE(f.path.find("raw1"), std::string::npos);
      if (error == ESTALE && engine.name != "threads") {  // these open the files twice, once for y
        EXPECT_GE(seen.faults.retries, 1u);
      }
    }
}

TEST(Faults, PermanentErrorsEndTheRunAndNameFileSampleAndRetries) {
  for (const Engine& engine : portable_engines()) {
    const RawSet set(sample_bytes, {20, 20}, x_offset);
    const Faults faults({fault_at(25, 26, EIO)});
    const std::string message =
        message_of([&] { expect_epoch(set, engine.make(set.index), fault_options(OnError::stop, 2), 1, 0, 0); });
    EXPECT_NE(message.find("cannot read sample 2"), std::string::npos) << engine.name << message;
    EXPECT_NE(message.find("raw1 (Input/output error), even after data.retries = 2"), std::string::npos)
        << engine.name << message;
  }
}

TEST(Faults, SkippedSamplesAreZerosAndAllOthersAreUnchanged) {
  for (const Engine& engine : portable_engines())
    for (const int ranks : {1, 3})
      for (const int workers : {0, 2}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, {} workers", engine.name, ranks, workers));
        const RawSet set(sample_bytes, {20, 20}, x_offset);
        // Samples 20 to 23 are bytes 0 to 20000 of x. Engines that read pages also fail on sample 24, which shares one.
        const Faults faults({{"raw1", 4096, 4096 + 20000, EIO}});
        const bool by_page = engine.name == "mmap" || engine.name == "threads";
        EpochSeen all;
        for (int rank = 0; rank < ranks; ++rank) {
          const EpochSeen one = expect_epoch(set, engine.make(set.index), fault_options(OnError::skip, 0), workers, 20,
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
  for (const Engine& engine : portable_engines()) {
    SCOPED_TRACE(engine.name);
    const RawSet set(sample_bytes, {20, 20}, x_offset);
    const std::string path = set.index.shards[1].path;
    std::filesystem::resize_file(path, set.index.shards[1].x_offset + 15 * sample_bytes);
    EpochSeen seen = expect_epoch(set, engine.make(set.index), fault_options(OnError::skip, 2), 2, 35, 40);
    EXPECT_EQ(seen.zeros, 5);
    ASSERT_EQ(seen.faults.files.size(), 1u);
    EXPECT_NE(seen.faults.files[0].error.find("truncated while in use"), std::string::npos)
        << seen.faults.files[0].error;
    EXPECT_EQ(seen.faults.retries, 0u);  // the error is permanent
    {
      const Faults faults({{.file = "raw0", .error = EACCES, .opening = true}, {.file = "raw1", .error = EIO}});
      seen = expect_epoch(set, engine.make(set.index), fault_options(OnError::skip, 0), 2, 0, 40);
      EXPECT_EQ(seen.zeros, rows);
    }
    std::filesystem::remove(path);
    seen = expect_epoch(set, engine.make(set.index), fault_options(OnError::skip, 2), 0, 20, 40);
    EXPECT_EQ(seen.faults.files[0].skipped_samples, 20u);
    EXPECT_NE(seen.faults.files[0].error.find("cannot open " + path), std::string::npos) << seen.faults.files[0].error;
  }
}

TEST(Faults, TooManyOpenFilesIsNotAFaultOfTheFile) {
  const RawSet set(sample_bytes, {20, 20}, x_offset);
  const Faults faults({{.file = "raw1", .error = EMFILE, .opening = true}});
  const std::string message = message_of(
      [&] { expect_epoch(set, make_direct_source(set.index, ""), fault_options(OnError::skip, 2), 1, 0, 0); });
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
    const auto source = make_source(*world, d, hdf5 ? Reader::mpio : Reader::direct, fault_options(OnError::skip, 1));
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
  measure_statistics(*world, measured, rows, fault_options(OnError::skip, 1));
  for (std::size_t c = 0; c < 600; ++c) {
    double sum = 0;
    for (std::size_t r = 0; r < 30; ++r) sum += r >= 10 && r < 15 ? 0 : x[r * 600 + c];
    EXPECT_NEAR(measured.values.mean.at(c), sum / 25, 1e-9);
  }
  EXPECT_NE(message_of([&] { measure_statistics(*world, measured); }).find("a.h5"), std::string::npos);
}

TEST(Faults, DestroyingALoaderDoesNotWaitForRetries) {
  const RawSet set(sample_bytes, {20, 20}, x_offset);
  const Faults faults({{.file = "raw", .error = EIO}});
  FaultOptions o = fault_options(OnError::stop, 100);  // would take minutes
  o.retry_delay = 5;
  test::HostDevice device;
  const auto source = make_retrying_source(make_direct_source(set.index, ""), set.index, o);
  const Sampler sampler(rows, global, micro, 5, true);
  const Loader loader(device, *source, set.index, sampler, {2, 3, micro}, [] { return MicroBatch{0, 0, 0, micro}; });
}

}  // namespace faults_test
}  // namespace millrace
