// Packing on several ranks: each writes its own part of every shard, collectively. The files do not depend on the
// number of ranks.
#include "millrace/data/pack/pack.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "data/files.hpp"
#include "millrace/base/files.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"
#include "mpi/shared_folder.hpp"
#include "mpi/world.hpp"

namespace millrace {
namespace pack_test {

namespace fs = std::filesystem;
using test::everywhere;
using test::SharedFolder;

std::uint32_t crc_of(const std::string& path) {
  const std::string bytes = read_file(path);
  return crc32(bytes.data(), bytes.size());
}

test::Rows rows() {
  test::Rows in;
  in.count = 1013;
  in.one = Shape{9, 7, 3};
  return in;
}

TEST(PackMpi, EveryRankWritesItsOwnRowsCollectively) {
  World& world = test_world();
  const SharedFolder folder(world);
  const PackReport report = pack(world, rows(), {.out = folder.path, .shard_bytes = 70000});
  everywhere(world, report.own_bytes > 0, "own bytes");
  everywhere(world, report.bytes == 1013u * (9 * 7 * 3 + 8 + 4), "bytes of all");
  everywhere(world, report.io_mode.find("collective") != std::string::npos, report.io_mode);
  everywhere(world, report.files.size() == 3, "shards");
}

// Rank 0 alone packs the same data set again.
TEST(PackMpi, FilesAreTheSameBytesAsThoseOfOneRank) {
  World& world = test_world();
  const SharedFolder folder(world);
  for (const bool first : {false, true}) {
    test::Rows in = rows();
    if (first) {
      in.first = true;
      in.one = Shape{3, 9, 7};
    }
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

// Every rank writes a consecutive part of a shard's chunks, and the labels of these rows.
TEST(PackMpi, EveryRankCompressesAndWritesItsOwnChunks) {
  World& world = test_world();
#ifdef MILLRACE_WITH_ZSTD
  const SharedFolder folder(world);
  const PackOptions plain{.out = folder.path / "plain", .shard_bytes = 100000};
  PackOptions options = plain;
  options.out = folder.path / "zstd";
  options.codec = io::make_encoder("zstd", 1);
  options.chunk_rows = 5;
  pack(world, rows(), plain);
  const PackReport report = pack(world, rows(), options);
  const auto index = [&](const PackOptions& o) {
    return index_shards(world, {.paths = {(o.out / "train-*.h5").string()}});
  };
  const ShardIndex d = index(options), same = index(plain);
  everywhere(world, d.shards.size() == 2, "shards");
  std::uint64_t mine = 0, all = 0;
  for (const Shard& s : d.shards) {
    const auto& chunks = s.x_chunks->chunks;
    const auto count = std::int64_t(chunks.size());
    const std::int64_t first = count * world.rank() / world.size(), last = count * (world.rank() + 1) / world.size();
    for (std::int64_t c = 0; c < count; ++c) {
      const std::uint64_t bytes =
          chunks[std::size_t(c)].bytes + (8 + 4) * std::uint64_t(std::min<std::int64_t>(5, s.rows - 5 * c));
      all += bytes;
      mine += c >= first && c < last ? bytes : 0;
    }
  }
  everywhere(world, mine > 0 && report.own_bytes == mine, fmt::format("own bytes {}, not {}", report.own_bytes, mine));
  everywhere(world, report.bytes == all, "bytes of all");
  const auto packed = make_source(world, d, Reader::automatic), expected = make_source(world, same, Reader::automatic);
  std::string x(d.sample_bytes(), '?'), y(4, '?'), x2 = x, y2 = y;
  bool equal = d.rows == same.rows;
  for (std::int64_t id = 0; equal && id < d.rows; ++id) {
    packed->read({&id, 1}, x.data(), y.data());
    expected->read({&id, 1}, x2.data(), y2.data());
    equal = x == x2 && y == y2;
  }
  everywhere(world, equal, "rows");

  test::Rows broken = rows();
  if (world.rank() == world.size() - 1) broken.fail_at = 500;
  options.out = folder.path / "broken";
  std::string message;
  try {
    pack(world, broken, options);
  } catch (const Error& e) {
    message = e.what();
  }
  everywhere(world, message.find("row 500 is broken") != std::string::npos, message);
  everywhere(world, fs::is_empty(options.out), "no file is left");
#else
  GTEST_SKIP() << "this build has no Zstandard; world of " << world.size();
#endif
}

#ifdef MILLRACE_WITH_PNG
// The part of an image that pack inspects: a PNG file up to its first pixels.
std::string header_of_png(std::size_t bytes) {
  const auto chunk = [](const std::string& type, const std::string& data) {
    const auto big_endian = [](std::uint32_t number) {
      std::string out;
      for (const int shift : {24, 16, 8, 0}) out += char(number >> shift);
      return out;
    };
    const std::string checked = type + data;
    return big_endian(std::uint32_t(data.size())) + checked + big_endian(crc32(checked.data(), checked.size()));
  };
  const std::string size("\0\0\0\7\0\0\0\5\10\2\0\0\0", 13);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", size) + chunk("IDAT", std::string(bytes, char('a' + bytes % 26)));
}

TEST(PackMpi, EncodedImagesAreTheSameBytesAsThoseOfOneRank) {
  World& world = test_world();
  const SharedFolder folder(world);
  if (world.rank() == 0)
    for (std::size_t i = 0; i < 61; ++i) {
      const fs::path name = folder.path / "photos" / fmt::format("class{}", i % 4) / fmt::format("{}.png", i);
      fs::create_directories(name.parent_path());
      std::ofstream(name, std::ios::binary) << header_of_png(i * i % 900);
    }
  world.barrier();
  const PackOptions options{.out = folder.path / "all", .shard_bytes = 9000, .seed = 5, .valid_fraction = 0.1};
  const PackReport report = pack_encoded(world, (folder.path / "photos").string(), options);
  everywhere(world, report.own_bytes > 0 && report.rows == 55 && report.files.size() >= 3, "rows, shards, own bytes");
  PackOptions alone = options;
  alone.out += "-alone";
  std::string problem;
  if (world.rank() == 0) {
    const PackReport one = pack_encoded(*solo_world(), (folder.path / "photos").string(), alone);
    if (one.files.size() != report.files.size()) problem = "unequal numbers of shards";
    for (std::size_t f = 0; problem.empty() && f < one.files.size(); ++f)
      if (crc_of(one.files[f]) != crc_of(report.files[f])) problem = report.files[f] + " differs";
  }
  everywhere(world, problem.empty(), problem);
}
#endif

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
        x[k].resize(n * d.sample_bytes());
        y[k].resize(n * 4);
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
  everywhere(world, fs::is_empty(folder.path), "no file is left");
}

// The disk of one rank, simulated by its file size limit, becomes full in the middle of a collective write.
TEST(PackMpi, AFullDiskOnOneRankEndsAllRanks) {
  World& world = test_world();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100 << 10, before.rlim_max};
  test::Rows in = rows();
  in.count = 3000;
  std::vector<std::optional<io::Encoder>> codecs{std::nullopt};
#ifdef MILLRACE_WITH_ZSTD
  codecs.push_back(io::make_encoder("zstd", 1));
#endif
  for (const auto& codec : codecs) {
    const SharedFolder folder(world);
    std::string message;
    if (world.rank() == world.size() - 1) setrlimit(RLIMIT_FSIZE, &small);
    try {
      pack(world, in, {.out = folder.path, .codec = codec});
    } catch (const Error& e) {
      message = e.what();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    everywhere(world, !message.empty(), "an error");
    world.barrier();
    everywhere(world, fs::is_empty(folder.path), "no file is left");
  }
}

}  // namespace pack_test
}  // namespace millrace
