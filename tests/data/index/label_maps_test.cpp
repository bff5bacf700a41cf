// Maps of labels: a label at each pixel or voxel of a sample.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "data/encoded_set.hpp"
#include "data/engines.hpp"
#include "data/index/image_shards.hpp"
#include "data/read_rows.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace label_maps_test {

using test::index_of;
using test::message_of;
using test::read_rows;
using test::TemporaryFolder;

constexpr std::int64_t ignored = 255;

// 0 to 10, or `ignored`.
std::int64_t label_at(std::int64_t id, std::int64_t position) {
  const std::int64_t value = (id * 31 + position * 7) % 12;
  return value == 11 ? ignored : value;
}

struct Storage {
  std::vector<hsize_t> x, y;  // of a row
  hid_t type;                 // of y
  bool chunked;
  Shape sample;
  const char* decided_by;
};

// Three files of 5, 1 and 6 rows.
std::vector<std::string> write_maps(const TemporaryFolder& folder, const Storage& s) {
  std::vector<std::string> paths;
  std::int64_t first = 0;
  for (const hsize_t rows : {5, 1, 6}) {
    std::vector<hsize_t> x_shape{rows}, y_shape{rows};
    x_shape.insert(x_shape.end(), s.x.begin(), s.x.end());
    y_shape.insert(y_shape.end(), s.y.begin(), s.y.end());
    std::int64_t x_count = 1, y_count = 1;
    for (const hsize_t extent : s.x) x_count *= std::int64_t(extent);
    for (const hsize_t extent : s.y) y_count *= std::int64_t(extent);
    std::vector<std::uint8_t> x;
    std::vector<std::int64_t> y;
    for (std::int64_t r = 0; r < std::int64_t(rows); ++r) {
      for (std::int64_t i = 0; i < x_count; ++i) x.push_back(std::uint8_t((first + r) * 41 + i));
      for (std::int64_t i = 0; i < y_count; ++i) y.push_back(label_at(first + r, i));
    }
    std::vector<hsize_t> x_chunk = x_shape, y_chunk = y_shape;
    x_chunk[0] = y_chunk[0] = 1;
    y_chunk[1] = (y_chunk[1] + 1) / 2;
    if (!s.chunked) x_chunk = y_chunk = {};
    paths.push_back(folder / fmt::format("part{}.h5", paths.size()));
    test::write_file(paths.back(), {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, x_shape, x.data(), x_chunk},
                                    {"y", s.type, H5T_NATIVE_INT64, y_shape, y.data(), y_chunk}});
    first += std::int64_t(rows);
  }
  return paths;
}

void expect_maps(Source& source, const ShardIndex& d, const std::string& what) {
  for (const auto& ids : {test::in_order(12), test::shuffled(12), std::vector<std::int64_t>{5, 5, 11}}) {
    const std::string y = read_rows(source, d, ids).y;
    const auto* labels = reinterpret_cast<const std::int32_t*>(y.data());
    for (const std::int64_t id : ids)
      for (std::int64_t p = 0; p < d.y.target.count(); ++p) {
        const std::int64_t stored = label_at(id, p);
        ASSERT_EQ(*labels++, stored == ignored ? -1 : stored) << what << " sample " << id << " position " << p;
      }
  }
}

const std::vector<Storage> storages{
    {{6, 7, 3}, {6, 7}, H5T_STD_U8LE, false, {6, 7, 3}, "by the label maps"},
    {{6, 7, 3}, {6, 7, 1}, H5T_STD_I64BE, true, {6, 7, 3}, "by the label maps"},
    {{5, 6, 7}, {6, 7}, H5T_STD_I32BE, false, {6, 7, 5}, "by the label maps"},  // channels first
    {{5, 6, 7}, {1, 6, 7}, H5T_STD_U8LE, true, {6, 7, 5}, "by the label maps"},
    {{6, 7}, {6, 7}, H5T_STD_I16LE, false, {6, 7, 1}, "by the label maps"},
    {{3, 3, 3}, {3, 3}, H5T_STD_U8LE, false, {3, 3, 3}, "by the shape"},  // the map fits both layouts
    {{4, 6, 7}, {4, 6, 7}, H5T_STD_U8LE, false, {4, 6, 7, 1}, "by the label maps"},
    {{4, 6, 7, 2}, {4, 6, 7}, H5T_STD_U16LE, true, {4, 6, 7, 2}, "by the label maps"},
    {{2, 4, 6, 7}, {4, 6, 7, 1}, H5T_STD_I64LE, false, {4, 6, 7, 2}, "by the label maps"}};

TEST(LabelMaps, EveryEngineReadsThemInEveryStorage) {
  const auto world = solo_world();
  for (const Storage& s : storages) {
    const TemporaryFolder folder;
    const std::string what = fmt::format("{} as {}{}", s.sample.str(), int(s.type), s.chunked ? ", chunked" : "");
    const ShardIndex d = index_of({.paths = write_maps(folder, s), .ignore_label = ignored});
    EXPECT_EQ(d.sample, s.sample) << what;
    EXPECT_EQ(d.x.layout_decided_by, s.decided_by) << what;
    EXPECT_EQ(d.x.channels_first, s.sample[-1] > 1 && std::int64_t(s.x.back()) != s.sample[-1]) << what;
    EXPECT_EQ(d.classes.count, 11) << what;
    ASSERT_TRUE(d.y.label_maps()) << what;
    ASSERT_EQ(d.y.target.rank, s.sample.rank - 1) << what;
    for (int axis = 0; axis < d.y.target.rank; ++axis) ASSERT_EQ(d.y.target[axis], s.sample[axis]) << what;
    for (const Reader reader : {Reader::automatic, Reader::direct, Reader::mpio})
      expect_maps(*make_source(*world, d, reader), d, what);
    if (s.chunked) continue;
    for (const test::Engine& engine : test::portable_engines()) expect_maps(*engine.make(d), d, what + engine.name);
  }
}

TEST(LabelMaps, WithoutAnIgnoredLabelEveryLabelIsAClass) {
  const TemporaryFolder folder;
  const ShardIndex d = index_of({.paths = write_maps(folder, storages[0])});
  EXPECT_EQ(d.classes.count, 256);
  EXPECT_EQ(d.y.ignore_label, -1);
}

TEST(LabelMaps, SignalsHaveThemIfTheLayoutIsKnown) {
  const TemporaryFolder folder;
  const auto paths = write_maps(folder, {{12, 2}, {12}, H5T_STD_U8LE, false, {}, ""});
  const ShardIndex d = index_of({.paths = paths, .layout = Layout::channels_last, .ignore_label = ignored});
  EXPECT_EQ(d.y.target, Shape{12});
  EXPECT_EQ(d.sample, (Shape{12, 2}));
  expect_maps(*make_source(*solo_world(), d, Reader::automatic), d, "signals");
  const std::string message = message_of([&] { index_of({.paths = paths}); }, Exit::data);
  EXPECT_NE(message.find("'y' holds 12 integers a row"), std::string::npos) << message;
}

TEST(LabelMaps, WhatDoesNotFitTheSamplesIsRefused) {
  const TemporaryFolder folder;
  const std::vector<float> floats(12 * 42, 1);
  const auto refusal = [&](const std::vector<hsize_t>& x, const std::vector<hsize_t>& y, Exit code = Exit::data,
                           DataOptions options = {}) {
    options.paths = write_maps(folder, {x, y, H5T_STD_U8LE, false, {}, ""});
    return message_of([&] { index_of(options); }, code);
  };
  const auto expect = [](const std::string& message, const char* words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect(refusal({6, 7, 3}, {6, 6}), "'y' holds 6x6 integers a row");
  expect(refusal({6, 7, 3}, {6, 6}), "one for each position of a sample, here 6x7");
  expect(refusal({6, 7, 3}, {6, 7, 2}), "'y' holds 6x7x2 integers a row");
  expect(refusal({3, 6, 7}, {6, 7}, Exit::data, {.paths = {}, .layout = Layout::channels_last}), "here 3x6");
  expect(refusal({42}, {42}), "'y' holds 42 integers a row");
  test::write_file(folder / "float.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {2, 6, 7, 3}, floats.data()},
                                         {"y", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {2, 6, 7}, floats.data()}});
  EXPECT_FALSE(index_of({.paths = {folder / "float.h5"}}).y.labels) << "targets of a regression";
  expect(message_of([&] { index_of({.paths = {folder / "float.h5"}, .ignore_label = 255}); }, Exit::config),
         "data.ignore_label: y of");
  expect(message_of([] { index_of({.paths = {"synthetic:images"}, .ignore_label = 3}); }, Exit::config),
         "data.ignore_label: only files");
}

TEST(LabelMaps, PackKeepsThemAndNotesTheIgnoredLabel) {
  const auto world = solo_world();
  for (const std::size_t which : {std::size_t(0), std::size_t(3), std::size_t(6), std::size_t(7)}) {
    const TemporaryFolder folder;
    const Storage& s = storages[which];
    const auto paths = write_maps(folder, s);
    ImportOptions in;
    in.x = paths;
    const auto importer = make_importer(in);
    PackOptions options{.out = folder.path / "packed", .shuffle = false};
    EXPECT_EQ(pack(*world, *importer, options).rows, 12);
    const std::vector<std::string> packed{folder / "packed/train-*.h5"};
    EXPECT_EQ(index_of({.paths = packed}).classes.count, 256);
    options.ignore_label = ignored;
    options.overwrite = true;
    pack(*world, *importer, options);
    const ShardIndex d = index_of({.paths = packed});
    EXPECT_EQ(d.classes.count, 11);
    EXPECT_EQ(d.y.ignore_label, ignored);
    EXPECT_EQ(d.sample, s.sample);
    EXPECT_EQ(d.x.layout_decided_by, "by the file's attribute");
    expect_maps(*make_source(*world, d, Reader::direct), d, "packed " + s.sample.str());
    std::vector<std::string> mixed{paths[0], folder / "packed/train-*.h5"};
    EXPECT_NE(message_of([&] { index_of({.paths = mixed}); }, Exit::data).find("(ignoring 255)"), std::string::npos);
  }
}

#if defined(MILLRACE_WITH_JPEG) && defined(MILLRACE_WITH_PNG)
TEST(LabelMaps, EncodedImagesHaveThemToo) {
  const TemporaryFolder folder;
  std::string bytes;
  std::vector<std::int64_t> offsets{0}, maps;
  for (int i = 0; i < 5; ++i) {
    bytes += test::png(24, 20, test::busy);
    offsets.push_back(std::int64_t(bytes.size()));
    for (std::int64_t p = 0; p < 24 * 20; ++p) maps.push_back(label_at(i, p));
  }
  const auto write = [&](hsize_t height) {
    test::write_file(folder / "a.h5",
                     {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {bytes.size()}, bytes.data()},
                      {"x_offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, {6}, offsets.data()},
                      {"y", H5T_STD_U8LE, H5T_NATIVE_INT64, {5, height, 24 * 20 / height}, maps.data()}});
  };
  write(24);
  const ShardIndex d = index_of({.paths = {folder / "a.h5"}, .ignore_label = ignored});
  EXPECT_EQ(d.sample, (Shape{24, 20, 3}));
  EXPECT_EQ(d.y.target, (Shape{24, 20}));
  const std::string y = read_rows(*make_source(*solo_world(), d, Reader::automatic), d, {4, 0, 2}).y;
  for (std::int64_t i = 0; i < 3 * 480; ++i) {
    const std::int64_t stored = maps[std::size_t(std::array{4, 0, 2}[std::size_t(i / 480)] * 480 + i % 480)];
    ASSERT_EQ(reinterpret_cast<const std::int32_t*>(y.data())[i], stored == ignored ? -1 : stored) << i;
  }
  write(20);
  const std::string message = message_of([&] { index_of({.paths = {folder / "a.h5"}}); }, Exit::data);
  EXPECT_NE(message.find("'y' holds 20x24 integers a row"), std::string::npos) << message;
}
#endif

// A box of one class over another; the values follow the class.
TEST(LabelMaps, SyntheticSamplesHaveABoxOfAnotherClass) {
  for (const char* shape : {"12x10x3", "6x8x10x1", "40x2"}) {
    const ShardIndex d =
        index_of({.paths = {fmt::format("synthetic:images:rows=50,shape={},classes=4,labels=pixel", shape)}});
    const auto source = make_source(*solo_world(), d, Reader::automatic);
    const auto all = read_rows(*source, d, test::in_order(50));
    const std::int64_t positions = d.y.target.count();
    ASSERT_EQ(positions, d.sample.count() / d.sample[-1]);
    const auto* labels = reinterpret_cast<const std::int32_t*>(all.y.data());
    std::set<std::int32_t> found;
    for (std::int64_t id = 0; id < 50; ++id, labels += positions) {
      const std::set<std::int32_t> here(labels, labels + positions);
      EXPECT_EQ(here.size(), 2u) << shape << " sample " << id;
      EXPECT_GT(std::count(labels, labels + positions, *here.begin()), 0);
      found.insert(here.begin(), here.end());
    }
    EXPECT_EQ(found, (std::set<std::int32_t>{0, 1, 2, 3}));
    EXPECT_EQ(read_rows(*source, d, {17}).y, all.y.substr(std::size_t(17 * positions) * 4, std::size_t(positions) * 4));
  }
  for (const char* wrong : {"labels=box", "shape=40,labels=pixel"})
    EXPECT_FALSE(
        message_of([&] { index_of({.paths = {fmt::format("synthetic:images:{}", wrong)}}); }, Exit::config).empty());
}

}  // namespace label_maps_test
}  // namespace millrace
