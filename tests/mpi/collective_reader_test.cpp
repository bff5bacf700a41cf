// data.reader = mpio_collective: all ranks read collectively, although they need different samples at different times.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "data/files.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/collective_schedule.hpp"
#include "millrace/io/hdf5.hpp"
#include "mpi/shared_folder.hpp"
#include "mpi/world.hpp"

namespace millrace {
namespace collective_reader_test {

using test::everywhere;
using test::SharedFolder;

struct ByteBuffer {
  std::vector<char> x, y;
  bool operator==(const ByteBuffer&) const = default;
};

ByteBuffer read_by(ReadQueue& reads, const ShardIndex& d, std::span<const std::int64_t> ids) {
  ByteBuffer out;
  out.x.resize(ids.size() * d.sample_bytes());
  out.y.resize(ids.size() * 4 * std::size_t(d.y.target.count()));
  reads.begin(ids, out.x.data(), out.y.data());
  reads.finish();
  return out;
}

// Compares this rank's part of an epoch between two engines. A step has three micro-batches, so two ranks get unequal
// numbers of them, and one of four ranks gets none. Ranks do not wait for each other between steps.
bool same_bytes(World& world, const ShardIndex& d) {
  const auto collective = make_source(world, d, Reader::mpio_collective),
             alone = make_source(world, d, Reader::automatic);
  const auto reads = collective->make_read_queue({}), plain = alone->make_read_queue({});
  const Sampler sampler(d.rows, 36, 12, 3, true);
  bool same = collective->describe().rfind("mpio_collective", 0) == 0;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step)
    for (const MicroBatch& m : sampler.share(0, step, world.rank(), world.size())) {
      std::vector<std::int64_t> ids(std::size_t(m.rows));
      sampler.ids(m, ids.data());
      same = same && read_by(*reads, d, ids) == read_by(*plain, d, ids);
    }
  const std::vector<std::int64_t> twice{5, d.rows - 1, 5};
  if (world.rank() == 0) same = same && read_by(*reads, d, twice) == read_by(*plain, d, twice);
  return same;
}

test::Rows rows() {
  test::Rows in;
  in.count = 101;
  in.one = Shape{9, 7, 3};
  return in;
}

TEST(CollectiveReader, RanksReadTheBytesThatTheyWouldReadAlone) {
  World& world = test_world();
  const SharedFolder folder(world);
  pack(world, rows(), {.out = folder.path, .shard_bytes = 10000});
  everywhere(world, same_bytes(world, index_shards(world, {.paths = {(folder.path / "train-*.h5").string()}})),
             "shards of pack");
  const std::string foreign = (folder.path / "foreign.h5").string();
  if (world.rank() == 0) {
    std::vector<std::int16_t> x(50 * 40);
    std::vector<float> u(50 * 3), v(50 * 2);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::int16_t(i * 77);
    for (std::size_t i = 0; i < u.size(); ++i) {
      u[i] = float(i);
      v[i % v.size()] = -float(i);
    }
    test::write_file(foreign, {{"x", H5T_STD_I16BE, H5T_NATIVE_INT16, {50, 40}, x.data(), {7, 16}},
                               {"u", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, {50, 3}, u.data()},
                               {"v", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, {50, 2}, v.data()}});
  }
  world.barrier();
  const ShardIndex d = index_shards(world, {.paths = {foreign}, .x = "x", .y = "u,v"});
  everywhere(world, same_bytes(world, d), "shuffled, compressed, big-endian; two data sets of targets");
  const ShardIndex concatenated = index_shards(world, {.paths = {foreign}, .x = "u,v", .y = "v"});
  everywhere(world, same_bytes(world, concatenated), "two data sets of samples");
}

// Only the last rank reads a sample that was truncated. It gets an error; the other ranks get their samples, then and
// later.
TEST(CollectiveReader, AFailedReadOfOneRankDoesNotBlockTheOthers) {
  World& world = test_world();
  const SharedFolder folder(world);
  pack(world, rows(), {.out = folder.path, .shard_bytes = 10000});
  const ShardIndex d = index_shards(world, {.paths = {(folder.path / "train-*.h5").string()}});
  const auto collective = make_source(world, d, Reader::mpio_collective, {.retries = 0}),
             alone = make_source(world, d, Reader::direct);
  const auto reads = collective->make_read_queue({}), plain = alone->make_read_queue({});
  const Shard cut = d.shards.back();
  world.barrier();
  if (world.rank() == 0) std::filesystem::resize_file(std::string(cut.path), cut.x_offset + 500);
  world.barrier();
  const std::vector<std::int64_t> good{3, 40, 7, 48}, bad{3, cut.first + cut.rows - 1};
  const bool last = world.rank() + 1 == world.size();
  std::string message;
  for (int round = 0; round < 3; ++round) {
    bool fine = true;
    try {
      const auto& ids = last && round == 1 ? bad : good;
      fine = read_by(*reads, d, ids) == read_by(*plain, d, ids);
    } catch (const Error& e) {
      message = e.what();
      fine = last && round == 1;
    }
    everywhere(world, fine, fmt::format("round {} {}", round, message));
  }
  everywhere(world, (message.find(std::string(cut.path)) != std::string::npos) == last, "the file's name: " + message);
}

// Two data sets are read, each by a thread of every rank at its own pace, while the main threads write a file
// collectively.
TEST(CollectiveReader, ReadsAndWritesOfOtherThreadsDoNotWaitForEachOther) {
  World& world = test_world();
  const SharedFolder folder(world);
  pack(world, rows(), {.out = folder.path});
  const ShardIndex d = index_shards(world, {.paths = {(folder.path / "train-*.h5").string()}});
  const auto a = make_source(world, d, Reader::mpio_collective), b = make_source(world, d, Reader::mpio_collective);
  const auto work = [&](Source& source, int pace) {
    const auto reads = source.make_read_queue({});
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::vector<std::int64_t> ids{i, 100 - i, 50 + i};
      read_by(*reads, d, ids);
      std::this_thread::sleep_for(std::chrono::milliseconds(pace));
    }
  };
  std::thread first([&] { work(*a, world.rank()); }), second([&] { work(*b, 2 - world.rank() % 3); });
  for (std::int64_t i = 0; i < 3; ++i) {
    const io::CollectiveLock lock(world);
    io::File file = io::File::create_parallel((folder.path / "written").string(), world);
    file.create_dataset("x", DType::i64, {world.size()});
    const std::int64_t mine = i * world.rank();
    file.write_rows("x", world.rank(), 1, DType::i64, &mine, io::File::Transfer::collective);
    file.close();
  }
  first.join();
  second.join();
  std::int64_t mine = -1;
  io::File::open((folder.path / "written").string()).read_rows("x", world.rank(), 1, DType::i64, &mine);
  everywhere(world, mine == 2 * world.rank(), "the written values");
}

}  // namespace collective_reader_test
}  // namespace millrace
