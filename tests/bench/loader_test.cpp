#include "millrace/bench/loader.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "data/files.hpp"
#include "millrace/base/error.hpp"
#include "millrace/bench/storage.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "support/expect_error.hpp"
#include "support/host/device.hpp"

namespace millrace {
namespace loader_test {

// Tests correctness only. Speed is measured by `millrace bench loader` on an idle machine.
TEST(Bench, LoaderAndBaselineReadsGiveRates) {
  test::HostDevice device;
  LoaderBenchOptions o;
  o.rows = 2048;
  o.samples = 4096;
  o.cold_samples = 256;
  o.repeats = 3;
  if (std::getenv("MILLRACE_BENCH")) o = {};
  const LoaderBench b = bench_loader(device, o);
  ASSERT_EQ(b.cached.size(), 3u);
  EXPECT_EQ(b.cold.empty(), !b.cold_skipped_reason.empty());
  for (const auto* rows : {&b.cached, &b.cold})
    for (const LoaderBenchRow& row : *rows) {
      EXPECT_GT(row.samples_per_second, 0) << row.name;
      EXPECT_EQ(row.ratio > 0, row.name.starts_with("loader")) << row.name;
    }
  std::cout << b.str() << "\n";
  o.rows = 3;
  EXPECT_THROW(bench_loader(device, o), Error);
}

TEST(Bench, AnEpochReadsOneHdf5FileAndRemovesIt) {
  const test::TemporaryFolder folder;
  test::HostDevice device;
  const EpochBench b = bench_epoch(
      device, {.folder = folder.path, .prefetch = 4, .repeats = 1, .samples = 1000, .sample_bytes = 640, .batch = 32});
  EXPECT_GT(b.first, 0);
  EXPECT_GT(b.cached, 0);
  EXPECT_GT(b.baseline, 0);
  EXPECT_NE(b.reader.find("1 shard"), std::string::npos) << b.reader;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
  std::cout << b.str() << "\n";
}

TEST(Bench, ShortStepsWaitForAFractionOfTheirTime) {
  test::HostDevice device;
  LoaderBenchOptions o;
  o.rows = 1024;
  o.repeats = 2;
  const WaitBench b = bench_waits(device, o, {0.002}, 0.05);
  ASSERT_EQ(b.rows.size(), 1u);
  EXPECT_GT(b.rows[0].step, 0.0005);  // measured in CPU time, so a busy machine only makes it longer
  for (const double share : {b.rows[0].wait_fixed, b.rows[0].wait_auto}) {
    EXPECT_GE(share, 0);
    EXPECT_LT(share, 1);
  }
  std::cout << b.str() << "\n";
}

// Chunks of 4 rows in a random order: most samples need decoding, because a cache of one byte keeps no chunk.
TEST(Bench, StagesOfPlainAndChunkedDataHaveBaselines) {
  const test::TemporaryFolder folder;
  test::HostDevice device;
  const auto world = solo_world();
  const std::vector<std::uint8_t> x(64 * 30 * 20, 7);
  const std::vector<std::int32_t> y(64, 1);
  for (const bool chunked : {false, true}) {
    const std::string path = folder / (chunked ? "chunked.h5" : "plain.h5");
    const std::vector<hsize_t> chunk = chunked ? std::vector<hsize_t>{4, 15, 20} : std::vector<hsize_t>{};
    test::write_file(path, {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {64, 30, 20}, x.data(), chunk},
                            {"y", H5T_STD_I32LE, H5T_NATIVE_INT32, {64}, y.data()}});
    const ShardIndex index = index_shards(*world, {.paths = {path}});
    const auto source = make_source(*world, index, Reader::direct, {}, {1, false});
    const Sampler sampler(64, 10, 10, 1, true);
    const StageRates rates = bench_stages(device, *source, index, sampler, {2, 3, 10}, 1, 0.02);
    EXPECT_GT(rates.engine, 0);
    EXPECT_GT(rates.loader, 0);
    EXPECT_GT(rates.baseline_read, 0);
    EXPECT_EQ(rates.baseline_decode > 0, chunked);
    EXPECT_GE(rates.wait_share, 0);
    EXPECT_LT(rates.wait_share, 1);
    EXPECT_GT(rates.stored_bytes, 0);
    EXPECT_EQ(rates.stored_bytes == 600, !chunked) << rates.stored_bytes;  // gzip of one value is far smaller
    EXPECT_FALSE(rates.fully_cached);
    if (!chunked) continue;
    const auto keeps = make_source(*world, index, Reader::direct, {}, {1 << 20, false});
    const StageRates kept = bench_stages(device, *keeps, index, sampler, {2, 3, 10}, 1, 0.02);
    EXPECT_TRUE(kept.fully_cached);
    EXPECT_EQ(kept.baseline_read, 0);
  }
  const ShardIndex synthetic = index_shards(*world, {.paths = {"synthetic:images:rows=64,shape=4x4x3,classes=2"}});
  const auto source = make_source(*world, synthetic, Reader::automatic);
  EXPECT_THROW(bench_stages(device, *source, synthetic, Sampler(64, 10, 10, 1, true), {1, 3, 10}, 1), Error);
}

// Counts the bytes that are read per sample.
TEST(Bench, StagesCountTheBytesOfViewsAndConcatenatedSamples) {
  const test::TemporaryFolder folder;
  test::HostDevice device;
  const auto world = solo_world();
  const std::vector<std::uint16_t> text(40 * 100, 7), scene(12 * 10 * 5, 3);
  std::vector<std::int32_t> map(12 * 10, 0), y(12, 1);
  map[5 * 10 + 5] = 1;  // both patches lie within the scene
  map[6 * 10 + 4] = 2;
  test::write_file(folder / "a.h5", {{"x", H5T_STD_U16LE, H5T_NATIVE_UINT16, {4000}, text.data()}});
  test::write_file(folder / "b.h5", {{"x", H5T_STD_U16LE, H5T_NATIVE_UINT16, {12, 10, 5}, scene.data()},
                                     {"y", H5T_STD_I32LE, H5T_NATIVE_INT32, {12, 10}, map.data()}});
  test::write_file(folder / "c.h5", {{"x", H5T_STD_U16LE, H5T_NATIVE_UINT16, {40, 100}, text.data(), {7, 16}}});
  test::write_file(folder / "d.h5", {{"x", H5T_STD_U16LE, H5T_NATIVE_UINT16, {12, 10, 5}, scene.data()},
                                     {"u", H5T_STD_U16LE, H5T_NATIVE_UINT16, {12, 10, 1}, scene.data()},
                                     {"y", H5T_STD_I32LE, H5T_NATIVE_INT32, {12}, y.data()}});
  struct Case {
    const char* file;
    SampleView view;
    const char* x;
    double bytes;  // 0: chunked
  };
  for (const Case& c : {Case{"a.h5", {.sample = SampleKind::tokens, .window = 32, .stride = 16}, "x", 66},
                        Case{"b.h5", {.sample = SampleKind::patch, .patch = 5}, "x", 250},
                        Case{"b.h5", {.sample = SampleKind::pair, .lead = 2}, "x", 200},
                        Case{"c.h5", {.sample = SampleKind::tokens, .window = 32, .stride = 16}, "x", 0},
                        Case{"d.h5", {}, "x,u", 120}}) {
    DataOptions options{.paths = {folder / c.file}, .x = c.x};
    options.view = c.view;
    if (c.bytes == 120) options.layout = Layout::channels_last;
    const ShardIndex index = index_shards(*world, options);
    const auto source = make_source(*world, index, Reader::direct, {}, {1, false});
    const Sampler sampler(index.rows, 2, 2, 1, true);
    const StageRates rates = bench_stages(device, *source, index, sampler, {1, 2, 2}, 1, 0.02);
    EXPECT_GT(rates.baseline_read, 0) << c.file;
    EXPECT_EQ(rates.baseline_decode > 0, c.bytes == 0) << c.file;
    if (c.bytes > 0) {
      EXPECT_EQ(rates.stored_bytes, c.bytes) << c.file;
    }
  }
}

// Three accelerators on two ranks: one has two.
TEST(Bench, EmulatedAcceleratorsAreFedFromGeneratedShards) {
  const test::TemporaryFolder folder;
  StorageBenchOptions o;
  o.workload = {"test", "none", 5000, 8, 0.002, 0.5};
  o.accelerators = 3;
  o.samples = 75;
  o.steps = 10;
  o.turns = 2;
  o.reader = Reader::direct;
  o.folder = folder.path;
  const auto run = [&] {
    run_thread_world(2, [&](World& world) {
      test::HostDevice device;
      const StorageBench b = bench_storage(world, device, o);
      ASSERT_EQ(b.replay.size(), 2u);
      for (const auto* turns : {&b.ceiling, &b.replay})
        for (const Utilization& u : *turns) {
          EXPECT_GT(u.nominal, 0);
          EXPECT_LE(u.nominal, u.measured);  // a sleep is never too short
          EXPECT_LE(u.measured + u.data_wait, 1);
          EXPECT_LE(u.samples_per_second, 3 * 8 / 0.002);
        }
      EXPECT_EQ(b.baseline_bytes_per_second > 0, world.rank() == 0);
    });
  };
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(folder.path), {}); };
  run();
  EXPECT_EQ(files(), 0);
  o.keep = true;
  run();
  EXPECT_EQ(files(), 1);
  o.keep = false;
  run();  // shards that were there already are kept
  EXPECT_EQ(files(), 1);
  o.samples = 23;
  EXPECT_THROW(run(), Error);  // too few for a step
  o.samples = std::int64_t(1) << 44;
  EXPECT_THROW(run(), Error);  // no space
  EXPECT_EQ(files(), 1);
}

TEST(Bench, StorageWorkloadsAreThePublishedOnes) {
  EXPECT_EQ(storage_workload("resnet50", "h100").batch, 400);
  test::expect_error(Exit::config, "retinanet is published for b200", [&] { storage_workload("retinanet", "a100"); });
}

}  // namespace loader_test
}  // namespace millrace
