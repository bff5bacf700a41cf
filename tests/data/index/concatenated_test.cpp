// Several HDF5 data sets are concatenated to one sample and one target, by every reader.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "data/files.hpp"
#include "data/open/wrappers.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"
#include "support/host/device.hpp"

namespace millrace {
namespace concatenated_test {

using test::Column;
using test::message_of;
using test::TemporaryFolder;

constexpr std::int64_t values_of[3] = {30, 60, 30};  // of u (6, 5), v (6, 5, 2), w (6, 5, 1)
float x_value(std::size_t part, std::int64_t id, std::int64_t i) { return float(id * 1000 + i) + 0.25f * float(part); }
float y_value(std::size_t part, std::int64_t id, std::int64_t i) { return float(id) - 10 * float(part) - float(i); }

struct Storage {
  bool big_endian;
  hsize_t chunk_rows;  // 0: contiguous
  bool mixed;          // v chunked, the others contiguous
};

// Makes files of 40, 1 and 23 rows with fields u, v, w and targets a (N) and b (N, 3).
std::vector<std::string> write_fields(const TemporaryFolder& folder, const Storage& s) {
  std::vector<std::string> paths;
  std::int64_t first = 0;
  for (const std::int64_t rows : {40, 1, 23}) {
    std::vector<float> x[3], y[2];
    for (std::int64_t id = first; id < first + rows; ++id) {
      for (std::size_t p = 0; p < 3; ++p)
        for (std::int64_t i = 0; i < values_of[p]; ++i) x[p].push_back(x_value(p, id, i));
      y[0].push_back(y_value(0, id, 0));
      for (std::int64_t i = 0; i < 3; ++i) y[1].push_back(y_value(1, id, i));
    }
    const hid_t type = s.big_endian ? H5T_IEEE_F32BE : H5T_IEEE_F32LE;
    const hsize_t n = hsize_t(rows), c = std::min(n, s.chunk_rows);
    const auto column = [&](const char* name, std::vector<hsize_t> shape, const std::vector<float>& values) {
      std::vector<hsize_t> chunk;
      if (c > 0 && (!s.mixed || name[0] == 'v' || name[0] == 'b')) {
        chunk = shape;
        chunk[0] = c;
      }
      if (chunk.size() > 2) chunk[2] = 4;
      return Column{name, type, H5T_NATIVE_FLOAT, shape, values.data(), chunk};
    };
    paths.push_back(folder / fmt::format("fields{}.h5", paths.size()));
    test::write_file(paths.back(),
                     {column("u", {n, 6, 5}, x[0]), column("v", {n, 6, 5, 2}, x[1]), column("w", {n, 6, 5, 1}, x[2]),
                      column("a", {n}, y[0]), column("b", {n, 3}, y[1])});
    first += rows;
  }
  return paths;
}

void expect_fields(std::span<const std::int64_t> ids, const float* x, const float* y, const std::string& who) {
  for (const std::int64_t id : ids) {
    for (std::size_t p = 0; p < 3; ++p)
      for (std::int64_t i = 0; i < values_of[p]; ++i) ASSERT_EQ(*x++, x_value(p, id, i)) << who << ", sample " << id;
    ASSERT_EQ(*y++, y_value(0, id, 0)) << who;
    for (std::int64_t i = 0; i < 3; ++i) ASSERT_EQ(*y++, y_value(1, id, i)) << who;
  }
}

DataOptions fields(std::vector<std::string> paths) { return {.paths = std::move(paths), .x = "u,v, w", .y = "a,b"}; }

TEST(Concatenated, EveryReaderConcatenatesTheDataSets) {
  for (const Storage& s : {Storage{false, 0, false}, Storage{true, 0, false}, Storage{false, 7, false},
                           Storage{true, 16, false}, Storage{false, 5, true}}) {
    const TemporaryFolder folder;
    const auto world = solo_world();
    const ShardIndex d = index_shards(*world, fields(write_fields(folder, s)));
    ASSERT_EQ(d.sample, (Shape{6, 5, 4}));
    ASSERT_EQ(d.y.target, (Shape{4}));
    ASSERT_EQ(d.rows, 64);
    std::vector<std::int64_t> shuffled(64), in_order(64);
    Sampler(64, 64, 64, 3, true).ids({0, 0, 0, 64}, shuffled.data());
    std::iota(in_order.begin(), in_order.end(), 0);
    std::vector<Reader> readers{Reader::automatic, Reader::direct, Reader::mpio};
    const ReaderFacts facts = reader_facts(d);
    for (const Reader reader : {Reader::mmap, Reader::uring})
      if (unsupported_reason(reader, facts, d).empty()) readers.push_back(reader);
    EXPECT_EQ(unsupported_reason(Reader::mmap, facts, d).empty(), s.chunk_rows == 0);
    for (const Reader reader : readers) {
      const auto source = make_source(*world, d, reader);
      for (const auto& ids : {shuffled, in_order, {39, 40, 41}, {63}}) {
        std::vector<float> x(ids.size() * 120), y(ids.size() * 4);
        source->read(ids, x.data(), y.data());
        expect_fields(ids, x.data(), y.data(), source->describe());
      }
      EXPECT_NE(source->describe().find("3 concatenated data sets: /u, /v, /w"), std::string::npos);
      for (const int workers : {0, 3}) {
        test::HostDevice device;
        const Sampler sampler(64, 16, 16, 5, true);
        std::int64_t given = 0;
        Loader loader(device, *source, d, sampler, {workers, 4, 16}, [&]() -> std::optional<MicroBatch> {
          if (given == 128) return std::nullopt;
          const MicroBatch item{given / 64, given % 64 / 16, given % 64, 16};
          given += 16;
          return item;
        });
        std::int64_t rows = 0;
        while (const Batch* b = loader.next()) {
          std::vector<std::int64_t> ids(16);
          sampler.ids(b->item, ids.data());
          expect_fields(ids, b->x.as<float>(), b->y.as<float>(), source->describe());
          rows += 16;
        }
        EXPECT_EQ(rows, 128);
      }
    }
  }
}

TEST(Concatenated, DataSetsThatDoNotFitAreRefusedByName) {
  const TemporaryFolder folder;
  const std::vector<float> values(480, 1);
  const std::vector<std::int64_t> numbers(480, 1);
  const std::string path = folder / "a.h5";
  const auto f32 = H5T_IEEE_F32LE, f64 = H5T_IEEE_F64LE, i64 = H5T_STD_I64LE;
  test::write_file(path, {{"u", f32, H5T_NATIVE_FLOAT, {4, 6, 5}, values.data()},
                          {"wide", f64, H5T_NATIVE_FLOAT, {4, 6, 5}, values.data()},
                          {"short", f32, H5T_NATIVE_FLOAT, {3, 6, 5}, values.data()},
                          {"other", f32, H5T_NATIVE_FLOAT, {4, 5, 6}, values.data()},
                          {"first", f32, H5T_NATIVE_FLOAT, {4, 3, 6, 5}, values.data()},
                          {"last", f32, H5T_NATIVE_FLOAT, {4, 6, 5, 3}, values.data()},
                          {"a", f32, H5T_NATIVE_FLOAT, {4}, values.data()},
                          {"labels", i64, H5T_NATIVE_INT64, {4}, numbers.data()},
                          {"few", i64, H5T_NATIVE_INT64, {3}, numbers.data()},
                          {"rows", i64, H5T_NATIVE_INT64, {4, 5}, numbers.data()}});
  const auto refusal = [&](const char* x, const char* y, Exit code = Exit::data) {
    return message_of([&] { index_shards(*solo_world(), {.paths = {path}, .x = x, .y = y}); }, code);
  };
  for (const auto& [x, y, words] :
       std::vector<std::array<const char*, 3>>{{"u,wide", "a", "'/wide' is fp64"},
                                               {"u,short", "a", "'/short' has 3 rows"},
                                               {"u,other", "a", "sample of '/other' is 5x6x1"},
                                               {"first,last", "a", "channels last"},
                                               {"u,nothing", "a", "no data set 'nothing' (data.x)"},
                                               {"u", "a,few", "'/few' has 3 rows, '/a' 4"},
                                               {"u", "a,rows", "'/rows' holds 5 integers a row"},
                                               {"u", "a,nothing", "no data set 'nothing' (data.y)"}})
    EXPECT_NE(refusal(x, y).find(words), std::string::npos) << refusal(x, y);
  EXPECT_NE(refusal("u,,first", "a", Exit::config).find("data.x: 'u,,first'"), std::string::npos);
  // With one channel, the layout does not matter.
  const ShardIndex d = index_shards(*solo_world(), {.paths = {path}, .x = "u,first,u", .y = "a"});
  EXPECT_TRUE(d.x.channels_first);
  EXPECT_EQ(d.sample, (Shape{6, 5, 5}));
}

// Labels stay integers, and each data set of y may have a type of its own.
TEST(Concatenated, EveryReaderReadsLabelsBesideTargets) {
  const std::int64_t rows = 50;
  std::vector<double> x(std::size_t(rows) * 4), b(std::size_t(rows) * 2);
  std::vector<int> label(static_cast<std::size_t>(rows));
  std::vector<float> a(label.size());
  for (std::size_t i = 0; i < label.size(); ++i) {
    label[i] = int(i * 7 % 11) - 1;
    a[i] = float(i) / 3;
    b[2 * i] = -double(i) / 7;
    b[2 * i + 1] = 1e-3 * double(i);
  }
  for (const bool big_endian : {false, true})
    for (const hsize_t chunk : {0, 8}) {
      const TemporaryFolder folder;
      const std::string path = folder / "columns.h5";
      const hsize_t n = hsize_t(rows);
      const auto chunks = [&](std::vector<hsize_t> shape) { return chunk ? shape : std::vector<hsize_t>(); };
      test::write_file(
          path,
          {{"x", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {n, 4}, x.data(), chunks({8, 4})},
           {"a", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {n}, a.data(), chunks({8})},
           {"kind", big_endian ? H5T_STD_I16BE : H5T_STD_I8LE, H5T_NATIVE_INT, {n}, label.data(), chunks({8})},
           {"b", big_endian ? H5T_IEEE_F64BE : H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {n, 2}, b.data(), chunks({8, 2})}});
      const auto world = solo_world();
      const ShardIndex d = index_shards(*world, {.paths = {path}, .x = "x", .y = "a, kind,b"});
      ASSERT_EQ(d.y.target, (Shape{4}));
      ASSERT_TRUE(d.y.has_label_parts());
      EXPECT_EQ(d.y.parts[1].classes, 10);
      EXPECT_EQ(d.y.parts[0].classes, 0);
      const ReaderFacts facts = reader_facts(d);
      for (const Reader reader : {Reader::direct, Reader::mpio, Reader::mmap, Reader::uring}) {
        if (reader != Reader::direct && reader != Reader::mpio && !unsupported_reason(reader, facts, d).empty())
          continue;
        const auto source = make_source(*world, d, reader);
        const std::vector<std::int64_t> ids{3, 0, 49, 17, 18};
        std::vector<float> samples(ids.size() * 4), y(ids.size() * 4);
        source->read(ids, samples.data(), y.data());
        for (std::size_t r = 0; r < ids.size(); ++r) {
          const auto id = std::size_t(ids[r]);
          EXPECT_EQ(y[4 * r], a[id]) << source->describe();
          EXPECT_EQ(std::bit_cast<std::int32_t>(y[4 * r + 1]), label[id]) << source->describe();
          EXPECT_EQ(y[4 * r + 2], float(b[2 * id]));
          EXPECT_EQ(y[4 * r + 3], float(b[2 * id + 1]));
        }
      }
    }
}

// Rows of 8 MiB need several reads each and exceed the buffers of all readers.
TEST(Concatenated, SamplesOfManyMegabytesAreReadCompletely) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  const std::int64_t rows = 3, half = 1 << 20;  // floats of each data set
  const auto value = [](std::size_t part, std::int64_t row, std::int64_t i) {
    return float((row * 7919 + i * 31 + std::int64_t(part)) % 16777213);
  };
  const std::string path = folder / "large.h5";
  {
    io::File file = io::File::create(path);
    std::vector<float> x(static_cast<std::size_t>(rows * half));
    for (const std::size_t part : {0, 1}) {
      const std::string name = part ? "/q" : "/p";
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < half; ++i) x[std::size_t(r * half + i)] = value(part, r, i);
      file.create_dataset(name, DType::f32, {rows, 64, 128, 128});
      file.write_rows(name, 0, rows, DType::f32, x.data());
    }
    file.create_dataset("/y", DType::f32, {rows});
    file.write_rows("/y", 0, rows, DType::f32, x.data());
    file.close();
  }
  const ShardIndex d = index_shards(*world, {.paths = {path}, .x = "p,q", .layout = Layout::no_channels});
  ASSERT_EQ(d.sample, (Shape{64, 128, 128, 2}));
  ASSERT_EQ(d.sample_bytes(), std::size_t(8) << 20);
  const ReaderFacts facts = reader_facts(d);
  for (const Reader reader : {Reader::direct, Reader::mmap, Reader::uring, Reader::mpio}) {
    if (reader != Reader::mpio && !unsupported_reason(reader, facts, d).empty()) continue;
    test::HostDevice device;
    const auto source = make_source(*world, d, reader);
    const Sampler sampler(rows, 2, 2, 5, false);
    int given = 0;
    Loader loader(device, *source, d, sampler, {2, 2, 2}, [&]() -> std::optional<MicroBatch> {
      if (given == 2) return std::nullopt;
      return MicroBatch{0, given, 2 * given, given++ ? 1 : 2};
    });
    std::int64_t row = 0;
    while (const Batch* b = loader.next())
      for (std::int64_t r = 0; r < b->item.rows; ++r, ++row) {
        const float* x = b->x.as<float>() + r * 2 * half;
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < 2 * half; ++i) wrong += x[i] != value(std::size_t(i / half), row, i % half);
        EXPECT_EQ(wrong, 0) << source->describe() << ", row " << row;
      }
    EXPECT_EQ(row, rows);
  }
}

}  // namespace concatenated_test
}  // namespace millrace
