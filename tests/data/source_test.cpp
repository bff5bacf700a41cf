#include "millrace/data/read/source.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "data/files.hpp"
#include "data/read_rows.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace source_test {

using test::message_of;
using test::read_rows;
using test::ReadRows;
using test::shuffled;
using test::TemporaryFolder;

// Three files of 40, 1 and 59 rows of 5 x 7 int16, with labels of the given type.
std::vector<std::string> write_set(const TemporaryFolder& folder, hid_t stored_x, hid_t stored_y,
                                   const std::vector<hsize_t>& chunk = {}) {
  std::vector<std::string> paths;
  std::int64_t first = 0;
  for (const std::int64_t rows : {40, 1, 59}) {
    std::vector<std::int16_t> x(std::size_t(rows * 35));
    std::vector<std::int64_t> y(static_cast<std::size_t>(rows));
    for (std::int64_t r = 0; r < rows; ++r) {
      y[std::size_t(r)] = (first + r) % 11;
      for (std::int64_t v = 0; v < 35; ++v) x[std::size_t(r * 35 + v)] = std::int16_t((first + r) * 300 + v - 5000);
    }
    paths.push_back(folder / fmt::format("part{}.h5", paths.size()));
    const hsize_t n = hsize_t(rows);
    std::vector<hsize_t> x_chunk = chunk, y_chunk = chunk;
    if (!chunk.empty()) {
      x_chunk = {std::min(n, chunk[0]), 5, 4};
      y_chunk = {std::min(n, chunk[0])};
    }
    test::write_file(paths.back(), {{"x", stored_x, H5T_NATIVE_INT16, {n, 5, 7}, x.data(), x_chunk},
                                    {"y", stored_y, H5T_NATIVE_INT64, {n}, y.data(), y_chunk}});
    first += rows;
  }
  return paths;
}

void expect_set(const ReadRows& rows, const std::vector<std::int64_t>& ids) {
  const auto* x = reinterpret_cast<const std::int16_t*>(rows.x.data());
  const auto* y = reinterpret_cast<const std::int32_t*>(rows.y.data());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ASSERT_EQ(y[i], ids[i] % 11) << ids[i];
    for (std::size_t v = 0; v < 35; ++v)
      ASSERT_EQ(x[i * 35 + v], std::int16_t(ids[i] * 300 + std::int64_t(v) - 5000)) << ids[i];
  }
}

TEST(Source, EveryEngineGivesTheSameRowsForEveryStorage) {
  struct Storage {
    hid_t x, y;
    std::vector<hsize_t> chunk;
  };
  for (const Storage& s : {Storage{H5T_STD_I16LE, H5T_STD_I64LE, {}}, Storage{H5T_STD_I16BE, H5T_STD_I32BE, {}},
                           Storage{H5T_STD_I16LE, H5T_STD_U8LE, {}}, Storage{H5T_STD_I16BE, H5T_STD_I64BE, {}},
                           Storage{H5T_STD_I16LE, H5T_STD_I64LE, {16}}, Storage{H5T_STD_I16BE, H5T_STD_U16BE, {7}}}) {
    const TemporaryFolder folder;
    const auto world = solo_world();
    const ShardIndex d = index_shards(*world, {.paths = write_set(folder, s.x, s.y, s.chunk)});
    ASSERT_EQ(d.rows, 100);
    EXPECT_EQ(d.classes.count, 11);
    std::vector<std::vector<std::int64_t>> orders{shuffled(100), {39, 40, 41}, {41, 40, 39}, {99}, {5, 6, 7, 50, 8, 9}};
    orders.emplace_back(100);
    std::iota(orders.back().begin(), orders.back().end(), 0);
    for (const Reader reader : {Reader::automatic, Reader::direct, Reader::mpio}) {
      const auto source = make_source(*world, d, reader);
      for (const auto& ids : orders) expect_set(read_rows(*source, d, ids), ids);
    }
    const std::string chosen = make_source(*world, d, Reader::automatic)->describe();
    EXPECT_TRUE(chosen.starts_with(s.chunk.empty() ? "mmap: contiguous data, 3 shards" : "direct: ")) << chosen;
    EXPECT_NE(chosen.find("(auto: "), std::string::npos) << chosen;
  }
}

// HDF5 1.10 reads such chunks wrongly in collective mode.
TEST(Source, ChunksThatWereNeverWrittenAreNotReadCollectively) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const std::vector<std::uint8_t> x(8 * 4, 7);
  const std::vector<std::int32_t> y(8, 1);
  test::write_file(path, {{"y", H5T_STD_I32LE, H5T_NATIVE_INT32, {8}, y.data()}});
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), dcpl = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t shape[] = {8, 4}, chunk[] = {4, 4}, none[] = {0, 0};
  H5Pset_chunk(dcpl, 2, chunk);
  const hid_t space = H5Screate_simple(2, shape, nullptr), half = H5Screate_simple(2, chunk, nullptr),
              dataset = H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, none, nullptr, chunk, nullptr);
  H5Dwrite(dataset, H5T_NATIVE_UINT8, half, space, H5P_DEFAULT, x.data());
  H5Dclose(dataset);
  H5Sclose(half);
  H5Sclose(space);
  H5Pclose(dcpl);
  H5Fclose(file);
  const ShardIndex d = index_shards(*solo_world(), {.paths = {path}});
  const std::string message =
      test::message_of([&] { make_source(*solo_world(), d, Reader::mpio_collective); }, Exit::config);
  EXPECT_NE(message.find("mpio_collective: " + path), std::string::npos) << message;
  std::vector<std::int64_t> ids(8);
  std::iota(ids.begin(), ids.end(), 0);
  const ReadRows direct = read_rows(*make_source(*solo_world(), d, Reader::direct), d, ids);
  EXPECT_EQ(std::count(direct.x.begin(), direct.x.end(), char(7)), 16);
  EXPECT_EQ(read_rows(*make_source(*solo_world(), d, Reader::mpio), d, ids), direct);
}

TEST(Source, ThreadsReadConcurrently) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  const ShardIndex d = index_shards(*world, {.paths = write_set(folder, H5T_STD_I16LE, H5T_STD_I64LE)});
  const auto source = make_source(*world, d, Reader::direct);
  const auto ids = shuffled(100);
  std::vector<ReadRows> rows(4);
  std::vector<std::thread> threads;
  for (auto& r : rows) threads.emplace_back([&] { r = read_rows(*source, d, ids); });
  for (auto& t : threads) t.join();
  for (const auto& r : rows) expect_set(r, ids);
}

TEST(Source, MoreShardsThanOpenFilesAreRead) {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int s = 0; s < 60; ++s) {
    paths.push_back(folder / fmt::format("s{}.h5", s));
    const std::vector<std::uint8_t> x{std::uint8_t(s), std::uint8_t(s + 1)};
    const std::int64_t y = s;
    test::write_file(paths.back(), {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {1, 2}, x.data()},
                                    {"y", H5T_STD_I64LE, H5T_NATIVE_INT64, {1}, &y}});
  }
  const auto world = solo_world();
  const ShardIndex d = index_shards(*world, {.paths = paths});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // In a child process, because the hard limit cannot be raised again.
  const pid_t child = fork();
  if (child == 0) {
    const rlimit few{40, 40};
    setrlimit(RLIMIT_NOFILE, &few);
    int wrong = 0;
    try {
      const auto source = make_source(*world, d, Reader::direct);
      for (int round = 0; round < 2; ++round)
        for (const auto id : shuffled(60)) {
          const ReadRows r = read_rows(*source, d, {id});
          wrong += r.x[0] != char(id) || r.y[0] != char(id);
        }
    } catch (const Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      wrong = 100;
    }
    _exit(wrong);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Source, TargetsOfAnyTypeBecomeFloat) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> x(10);
  const std::vector<double> y{0.5, -1, 1e10, 3, 4, 5, 6, 7, 8, 9};
  for (const hid_t stored : {H5T_IEEE_F64LE, H5T_IEEE_F32BE, H5T_IEEE_F64BE}) {
    test::write_file(folder / "t.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {5, 2}, x.data()},
                                       {"y", stored, H5T_NATIVE_DOUBLE, {5, 2}, y.data()}});
    const auto world = solo_world();
    const ShardIndex d = index_shards(*world, {.paths = {folder / "t.h5"}});
    for (const Reader reader : {Reader::direct, Reader::mpio}) {
      const ReadRows r = read_rows(*make_source(*world, d, reader), d, {4, 0, 1});
      const auto* t = reinterpret_cast<const float*>(r.y.data());
      EXPECT_EQ(std::vector<float>(t, t + 6), (std::vector<float>{8, 9, 0.5f, -1, 1e10f, 3}));
    }
  }
}

TEST(Source, ATruncatedOrRemovedFileIsNamedWithTheSample) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  const auto paths = write_set(folder, H5T_STD_I16LE, H5T_STD_I64LE);
  const ShardIndex d = index_shards(*world, {.paths = paths});
  const auto source = make_source(*world, d, Reader::direct);
  read_rows(*source, d, {41, 42});
  std::filesystem::resize_file(paths[2], d.shards[2].x_offset + 10 * 70 + 3);
  std::string message = message_of([&] { read_rows(*source, d, {50, 51, 52}); });
  EXPECT_NE(message.find("part2.h5"), std::string::npos) << message;
  EXPECT_NE(message.find("sample 51"), std::string::npos) << message;
  std::filesystem::remove(paths[1]);
  message = message_of([&] { read_rows(*source, d, {40}); });
  EXPECT_NE(message.find("part1.h5"), std::string::npos) << message;
}

TEST(Source, LabelsThatDoNotFitIntoInt32AreAnError) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> x(4);
  const std::vector<std::int64_t> y{0, std::int64_t(1) << 40};
  test::write_file(folder / "t.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {2, 2}, x.data()},
                                     {"y", H5T_STD_I64LE, H5T_NATIVE_INT64, {2}, y.data()}});
  const auto world = solo_world();
  const std::string message = message_of([&] { index_shards(*world, {.paths = {folder / "t.h5"}}); });
  EXPECT_NE(message.find("t.h5: 'y' holds the label 1099511627776, the data set has 2 rows"), std::string::npos)
      << message;
  io::File file = io::File::append(folder / "t.h5");
  file.set("/", "classes", std::int64_t(2));
  file.close();
  const ShardIndex wrong = index_shards(*world, {.paths = {folder / "t.h5"}});  // the attribute is wrong
  const std::string reading = message_of([&] {
    read_rows(*make_source(*world, wrong, Reader::direct), wrong, {0, 1});
  });
  EXPECT_NE(reading.find("t.h5"), std::string::npos) << reading;
}

TEST(Source, SyntheticSamplesAreAFunctionOfTheirId) {
  const auto world = solo_world();
  for (const char* shape : {"9x7x3", "33", "4x5x6x2", "300x2"}) {
    const ShardIndex d =
        index_shards(*world, {.paths = {fmt::format("synthetic:images:rows=200,classes=5,shape={}", shape)}});
    const auto a = make_source(*world, d, Reader::automatic), b = make_source(*world, d, Reader::automatic);
    const auto ids = shuffled(200);
    const ReadRows all = read_rows(*a, d, ids);
    std::vector<int> classes(5);
    double mean = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const ReadRows one = read_rows(*b, d, {ids[i]});
      ASSERT_TRUE(std::equal(one.x.begin(), one.x.end(), all.x.begin() + std::ptrdiff_t(i * d.sample_bytes())));
      const std::int32_t label = *reinterpret_cast<const std::int32_t*>(one.y.data());
      ASSERT_TRUE(label >= 0 && label < 5);
      ++classes[std::size_t(label)];
      for (const char v : one.x) mean += double(std::uint8_t(v)) / double(all.x.size());
    }
    for (const int n : classes) EXPECT_GT(n, 15);
    EXPECT_NEAR(mean / 255, 0.5, 0.04);
  }
}

TEST(Source, SyntheticShapesAreBounded) {
  const auto world = solo_world();
  const std::pair<const char*, const char*> cases[] = {
      {"shape=99999999x99999999x99999999", "more than 1 GiB"},
      {"shape=99999999x8x1,classes=99999", "the patterns of all classes"},
      {"shape=8x8x3x3x3", "more than 4 dimensions"},
      {"rows=9223372036854775807,shape=8x8x3", "more than 2^48 rows"}};
  for (const auto& [spec, words] : cases)
    test::expect_error(Exit::config, words, [&, spec = spec] {
      index_shards(*world, {.paths = {std::string("synthetic:images:") + spec}});
    });
}

// Other samples are nearest to the mean of their class, taken over about 30 samples.
TEST(Source, SyntheticClassesCanBeLearned) {
  const auto world = solo_world();
  for (const char* shape : {"16x16x3", "64"}) {
    const ShardIndex d =
        index_shards(*world, {.paths = {fmt::format("synthetic:images:rows=400,classes=6,shape={}", shape)}});
    const auto source = make_source(*world, d, Reader::automatic);
    std::vector<std::int64_t> ids(400);
    std::iota(ids.begin(), ids.end(), 0);
    const ReadRows rows = read_rows(*source, d, ids);
    const std::size_t n = d.sample_bytes();
    const auto value = [&](std::size_t row, std::size_t v) { return double(std::uint8_t(rows.x[row * n + v])); };
    const auto label = [&](std::size_t row) { return reinterpret_cast<const std::int32_t*>(rows.y.data())[row]; };
    std::vector<std::vector<double>> means(6, std::vector<double>(n));
    std::vector<double> counts(6);
    for (std::size_t r = 0; r < 200; ++r) {
      ++counts[std::size_t(label(r))];
      for (std::size_t v = 0; v < n; ++v) means[std::size_t(label(r))][v] += value(r, v);
    }
    int right = 0;
    for (std::size_t r = 200; r < 400; ++r) {
      int best = 0;
      double min_distance = 1e300;
      for (std::size_t c = 0; c < 6; ++c) {
        double distance = 0;
        for (std::size_t v = 0; v < n; ++v) distance += std::pow(value(r, v) - means[c][v] / counts[c], 2);
        if (distance < min_distance) {
          min_distance = distance;
          best = int(c);
        }
      }
      right += best == label(r);
    }
    EXPECT_GT(right, 180) << shape;
  }
}

}  // namespace source_test
}  // namespace millrace
