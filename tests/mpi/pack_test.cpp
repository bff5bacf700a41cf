// Packing by several ranks: each writes its own part of every shard, collectively, and the files do not tell how many
// there were.
#include "millrace/data/pack.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <span>

#include "data/files.hpp"
#include "millrace/base/files.hpp"
#include "millrace/data/sampler.hpp"
#include "millrace/data/source.hpp"
#include "mpi/world.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// One folder that all ranks use; it goes with its owner.
struct SharedFolder {
  World& world;
  fs::path path;
  explicit SharedFolder(World& w) : world(w) {
    path = w.broadcast_string((fs::temp_directory_path() / cat("millrace_pack_", getpid())).string());
  }
  ~SharedFolder() {
    world.barrier();
    std::error_code ignored;
    if (world.rank() == 0) fs::remove_all(path, ignored);
  }
};

// Judged on all ranks, so that they fail together.
void everywhere(World& world, bool mine, const std::string& what) {
  std::int64_t failed = mine ? 0 : 1;
  world.all_reduce(std::span<std::int64_t>(&failed, 1), World::Reduce::sum);
  EXPECT_EQ(failed, 0) << what << (mine ? "" : " (on this rank)");
}

std::uint32_t crc_of(const std::string& path) {
  const std::string bytes = read_file(path);
  return crc32(bytes.data(), bytes.size());
}

test::Rows rows() {
  test::Rows in;
  in.count = 1013, in.one = Shape{9, 7, 3};
  return in;
}

TEST(PackMpi, EveryRankWritesItsOwnRowsCollectively) {
  World& world = test_world();
  const SharedFolder folder(world);
  const PackReport report = pack(world, rows(), {.out = folder.path, .shard_bytes = 70000});
  everywhere(world, report.own_bytes > 0, "own bytes");
  everywhere(world, report.bytes == 1013u * (9 * 7 * 3 + 8), "bytes of all");
  everywhere(world, report.io_mode.find("collective") != std::string::npos, report.io_mode);
  everywhere(world, report.files.size() == 3, "shards");
}

// Rank 0 packs alone what all ranks pack together.
TEST(PackMpi, FilesAreTheSameBytesAsThoseOfOneRank) {
  World& world = test_world();
  const SharedFolder folder(world);
  for (const bool first : {false, true}) {
    test::Rows in = rows();
    if (first) in.first = true, in.one = Shape{3, 9, 7};
    const PackOptions options{
        .out = folder.path / (first ? "nchw" : "nhwc"), .shard_bytes = 50000, .seed = 5, .valid_fraction = 0.1};
    const PackReport report = pack(world, in, options);
    PackOptions alone = options;
    alone.out += "-alone";
    std::string problem;
    if (world.rank() == 0) {
      const PackReport one = pack(*solo_world(), in, alone);
      if (one.files.size() != report.files.size()) problem = "unequal numbers of shards";
      for (std::size_t f = 0; problem.empty() && f < one.files.size(); ++f)
        if (crc_of(one.files[f]) != crc_of(report.files[f])) problem = report.files[f] + " differs";
    }
    everywhere(world, problem.empty(), problem);
  }
}

TEST(PackMpi, DirectAndMpioGiveTheSameBatches) {
  World& world = test_world();
  const SharedFolder folder(world);
  pack(world, rows(), {.out = folder.path, .shard_bytes = 50000});
  const ShardIndex d = index_shards(world, {.paths = {(folder.path / "train-*.h5").string()}});
  const auto direct = make_source(world, d, Reader::direct), mpio = make_source(world, d, Reader::mpio);
  everywhere(world, mpio->describe().rfind("mpio", 0) == 0, mpio->describe());
  const Sampler sampler(d.rows, 64, 16, 3, true);
  bool same = true;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step)
    for (const MicroBatch& m : sampler.share(1, step, world.rank(), world.size())) {
      const auto n = std::size_t(m.rows);
      std::vector<std::int64_t> ids(n);
      sampler.ids(m, ids.data());
      std::array<std::vector<char>, 2> x, y;
      for (std::size_t k = 0; k < 2; ++k) {
        x[k].resize(n * d.sample_bytes()), y[k].resize(n * 4);
        (k ? *mpio : *direct).read(ids, x[k].data(), y[k].data());
      }
      same = same && x[0] == x[1] && y[0] == y[1];
    }
  everywhere(world, same, "batches");
}

TEST(PackMpi, AFailureOfOneRankReachesAllAndLeavesNoShard) {
  World& world = test_world();
  const SharedFolder folder(world);
  test::Rows in = rows();
  if (world.rank() == world.size() - 1) in.fail_at = 500;
  std::string message;
  try {
    pack(world, in, {.out = folder.path});
  } catch (const Error& e) {
    message = e.what();
  }
  everywhere(world, message.find("row 500 is broken") != std::string::npos, message);
  world.barrier();
  everywhere(world, fs::is_empty(folder.path), "no file stays");
}

// The disk of one rank is full (its file size limit stands for that) in the middle of a collective write.
TEST(PackMpi, AFullDiskOnOneRankEndsAllOfThem) {
  World& world = test_world();
  const SharedFolder folder(world);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100 << 10, before.rlim_max};
  test::Rows in = rows();
  in.count = 3000;
  std::string message;
  if (world.rank() == world.size() - 1) setrlimit(RLIMIT_FSIZE, &small);
  try {
    pack(world, in, {.out = folder.path});
  } catch (const Error& e) {
    message = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  everywhere(world, !message.empty(), "an error");
  world.barrier();
  everywhere(world, fs::is_empty(folder.path), "no file stays");
}

}  // namespace
}  // namespace millrace
