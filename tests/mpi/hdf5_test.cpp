// Parallel HDF5. Every rank writes its own part of one file through MPI-IO. The kernel counts the bytes that each
// process writes, so the tests notice if one rank writes for all.
#include "millrace/io/hdf5.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>

#include "millrace/base/error.hpp"
#include "millrace/base/message_of.hpp"
#include "mpi/world.hpp"

namespace millrace::io {
namespace hdf5_test {

namespace fs = std::filesystem;

// One path that all ranks use. The destructor removes the file.
struct SharedPath {
  World& world;
  std::string path;
  explicit SharedPath(World& w) : world(w) {
    path = world.broadcast_string((fs::temp_directory_path() / fmt::format("millrace_mpi_{}.h5", getpid())).string());
  }
  ~SharedPath() {
    world.barrier();
    std::error_code ignored;
    if (world.rank() == 0) fs::remove(path, ignored);
  }
};

// Bytes that this process has passed to write calls so far.
std::int64_t kernel_written() {
  std::ifstream in("/proc/self/io");
  std::string key;
  for (std::int64_t value = 0; in >> key >> value;)
    if (key == "wchar:") return value;
  return -1;
}

std::int64_t part(std::int64_t rows, int rank, int size) { return rows * rank / size; }

// All ranks check the ranges of all ranks, so that they fail together.
void everywhere(World& world, bool mine, const std::string& what) {
  std::vector<std::int64_t> failed{mine ? 0 : 1};
  world.all_reduce(std::span<std::int64_t>(failed), World::Reduce::sum);
  EXPECT_EQ(failed[0], 0) << what << (mine ? "" : " (on this rank)");
}

const std::string collective_mode = "contiguous collective, every rank its own bytes";

void write_and_read(World& world, DType dtype, std::int64_t rows, std::int64_t columns, File::Transfer kind,
                    const std::string& mode) {
  const SharedPath shared(world);
  const std::int64_t begin = part(rows, world.rank(), world.size()), end = part(rows, world.rank() + 1, world.size());
  std::vector<std::int32_t> mine(std::size_t((end - begin) * columns));
  std::iota(mine.begin(), mine.end(), std::int32_t(begin * columns));
  const std::int64_t own_bytes = (end - begin) * columns * std::int64_t(size_of(dtype));
  {
    File file = File::create_parallel(shared.path, world);
    file.set("/", "format", std::string("test"));
    file.create_dataset("x", dtype, {rows, columns});
    const std::int64_t before = kernel_written();
    file.write_rows("x", begin, end - begin, DType::i32, mine.data(), kind);
    const std::int64_t written = kernel_written() - before;
    file.set("x", "rows", rows);
    file.flush();
    everywhere(world, std::int64_t(file.bytes_written()) == own_bytes, "the file's own count of bytes");
    if (before >= 0)
      everywhere(world, written >= own_bytes, fmt::format("the kernel's count {} of {}", written, own_bytes));
    if (kind != File::Transfer::independent)
      everywhere(world, file.last_io_mode() == mode || file.last_io_mode() == collective_mode,
                 file.last_io_mode() + ", not " + mode);
    file.close();
  }
  world.barrier();
  {
    const File file = File::open(shared.path);  // by every rank, with the serial driver
    std::vector<std::int32_t> all(std::size_t(rows * columns));
    file.read_rows("x", 0, rows, DType::i32, all.data());
    bool right = true;
    for (std::size_t i = 0; i < all.size(); ++i) right = right && all[i] == std::int32_t(i);
    everywhere(world, right && file.get_int("x", "rows") == rows, "read back serially");
    everywhere(world, file.info("x").offset.value_or(1) % 4096 == 0, "aligned to 4 KiB");
  }
  const File file = File::open_parallel(shared.path, world);
  std::vector<std::int32_t> back(mine.size(), -1);
  file.read_rows("x", begin, end - begin, DType::i32, back.data(), kind);
  everywhere(world, back == mine, "read back in parallel");
}

TEST(Hdf5, EveryRankWritesItsOwnRowsCollectively) {
  World& world = test_world();
  write_and_read(world, DType::i32, 597, 4300, File::Transfer::collective, collective_mode);
}

TEST(Hdf5, EveryRankWritesItsOwnRowsIndependently) {
  World& world = test_world();
  write_and_read(world, DType::i32, 597, 4300, File::Transfer::independent, "");
}

// HDF5 1.14 converts values in a collective transfer; 1.10 falls back to an independent one.
TEST(Hdf5, ConvertedRowsArriveAndTheModeSaysWhyNotCollective) {
  World& world = test_world();
  write_and_read(world, DType::i64, 97, 43, File::Transfer::collective, "independent (elements are converted)");
}

TEST(Hdf5, RanksWithoutRowsTakePart) {
  World& world = test_world();
  const SharedPath shared(world);
  const std::vector<std::int32_t> values(12, 7);
  const bool last = world.rank() == world.size() - 1;
  File file = File::create_parallel(shared.path, world);
  file.create_dataset("x", DType::i32, {4, 3});
  file.write_rows("x", 0, last ? 4 : 0, DType::i32, last ? values.data() : nullptr, File::Transfer::collective);
  std::vector<std::int32_t> back(12);
  file.flush();
  file.read_rows("x", 0, last ? 0 : 4, DType::i32, last ? nullptr : back.data(), File::Transfer::collective);
  everywhere(world, last || back == values, "values");
  file.close();
}

// As for checkpoints: all ranks create a data set, and the rank that has the values writes it.
TEST(Hdf5, OneRankAloneWritesADatasetThatAllCreated) {
  World& world = test_world();
  const SharedPath shared(world);
  const int count = 7;
  File file = File::create_parallel(shared.path, world);
  for (int t = 0; t < count; ++t) {
    file.create_dataset(fmt::format("group/t{}", t), DType::f32, {t + 1});
    file.set(fmt::format("group/t{}", t), "crc32", std::int64_t(t));
  }
  for (int t = 0; t < count; ++t)
    if (t % world.size() == world.rank())
      file.write_rows(fmt::format("group/t{}", t), 0, t + 1, DType::f32,
                      std::vector<float>(std::size_t(t) + 1, float(t)).data());
  file.close();
  const File reader = File::open(shared.path);
  bool right = true;
  for (int t = 0; t < count; ++t) {
    std::vector<float> back(std::size_t(t) + 1);
    reader.read_rows(fmt::format("group/t{}", t), 0, t + 1, DType::f32, back.data());
    right = right && back == std::vector<float>(back.size(), float(t)) &&
            reader.get_int(fmt::format("group/t{}", t), "crc32") == t;
  }
  everywhere(world, right, "values");
}

TEST(Hdf5, AnInvalidRangeOnOneRankFailsOnAll) {
  World& world = test_world();
  const SharedPath shared(world);
  File file = File::create_parallel(shared.path, world);
  file.create_dataset("x", DType::i32, {4});
  const std::int32_t values[8] = {};
  const bool wrong = world.rank() == world.size() - 1;
  const std::string message = message_of(
      [&] { file.write_rows("x", wrong ? 3 : 0, wrong ? 5 : 1, DType::i32, values, File::Transfer::collective); });
  everywhere(world, message.find(wrong ? "do not exist" : "another rank") != std::string::npos, message);
  file.close();
}

// A limit on the size of files simulates a full disk.
struct FileLimit {
  rlimit before{};
  explicit FileLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit lower{bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &before); }
};

TEST(Hdf5, AFullDiskOnOneRankIsReportedOnAllAndNobodyHangs) {
  World& world = test_world();
  const SharedPath shared(world);
  const std::int64_t rows = 1 << 20;
  const std::vector<char> bytes(std::size_t(rows), 'x');
  const bool last = world.rank() == world.size() - 1;
  for (const auto kind : {File::Transfer::collective, File::Transfer::independent}) {
    File file = File::create_parallel(shared.path, world);
    file.create_dataset("x", DType::u8, {rows * world.size()});
    std::string problem;
    {
      std::optional<FileLimit> full;
      if (last) full.emplace(rlim_t(rows * world.rank() + rows / 2));
      problem = message_of([&] { file.write_rows("x", rows * world.rank(), rows, DType::u8, bytes.data(), kind); });
    }
    if (kind == File::Transfer::independent) {  // the other ranks see the error when they flush
      everywhere(world, last != problem.empty(), problem);
      problem = message_of([&] { file.flush(); });
    }
    everywhere(world, problem.find("the file is abandoned") != std::string::npos, problem);
    everywhere(world, last != (problem.find("another rank could not") != std::string::npos), problem);
    file.close();  // nothing is left to close
    everywhere(world, fs::file_size(shared.path) == 0, "the file gives its bytes back");
  }
  File again = File::create_parallel(shared.path, world);
  again.create_dataset("x", DType::u8, {world.size()});
  again.write_rows("x", world.rank(), 1, DType::u8, "x", File::Transfer::collective);
  again.close();
  EXPECT_GT(fs::file_size(shared.path), 0u);
}

TEST(Hdf5, AFileThatOneRankAbandonsIsAbandonedByAll) {
  World& world = test_world();
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  const SharedPath shared(world);
  const bool last = world.rank() == world.size() - 1;
  std::string problem = "gave up";
  {
    File file = File::create_parallel(shared.path, world);
    file.create_dataset("x", DType::u8, {8});
    if (!last) problem = message_of([&] { file.close(); });
  }
  everywhere(world, last || problem.find("another rank") != std::string::npos, problem);
}

TEST(Hdf5, OpeningAndCreatingFailOnAllRanksAlike) {
  World& world = test_world();
  const std::string missing = message_of([&] { File::open_parallel("/nowhere/a.h5", world); });
  everywhere(world, missing.find("No such file") != std::string::npos, missing);
  const std::string uncreated = message_of([&] { File::create_parallel("/nowhere/a.h5", world); });
  everywhere(world, uncreated.find("No such file") != std::string::npos, uncreated);
}

}  // namespace hdf5_test
}  // namespace millrace::io
