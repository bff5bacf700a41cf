#include "millrace/data/index/shards.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "data/files.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct Images {
  std::vector<std::uint8_t> x;
  std::vector<std::int64_t> y;
  explicit Images(std::size_t rows, std::size_t bytes = 48) : x(rows * bytes), y(rows) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::uint8_t(i * 37 + i / 48);
    for (std::size_t i = 0; i < rows; ++i) y[i] = std::int64_t(i % 6);
  }
};

void write_images(const std::string& path, const std::vector<hsize_t>& shape, const std::vector<hsize_t>& y_shape,
                  const char* x_name = "x", const char* y_name = "y") {
  const Images i(shape[0]);
  test::write_file(path, {{x_name, H5T_STD_U8LE, H5T_NATIVE_UINT8, shape, i.x.data()},
                          {y_name, H5T_STD_I64LE, H5T_NATIVE_INT64, y_shape, i.y.data()}});
}

ShardIndex index_of(const DataOptions& options) { return index_shards(*solo_world(), options); }

TEST(Shards, TheIndexHasFilesInOrderWithShapesAndTypes) {
  const TemporaryFolder folder;
  write_images(folder / "a-00001.h5", {5, 4, 4, 3}, {5});
  write_images(folder / "a-00000.h5", {7, 4, 4, 3}, {7});
  const ShardIndex d = index_of({.paths = {folder / "a-*.h5"}});
  ASSERT_EQ(d.shards.size(), 2u);
  EXPECT_EQ(d.shards[0].path, folder / "a-00000.h5");
  EXPECT_EQ(d.shards[1].first, 7);
  EXPECT_EQ(d.rows, 12);
  EXPECT_EQ(d.sample, (Shape{4, 4, 3}));
  EXPECT_EQ(d.x.dtype, DType::u8);
  EXPECT_TRUE(d.y.labels);
  EXPECT_EQ(d.classes.count, 6);  // counted from the labels
  EXPECT_DOUBLE_EQ(d.values.scale, 1 / 255.0);
  EXPECT_FALSE(d.x.channels_first);
  EXPECT_FALSE(d.shards[0].x_chunks || d.shards[0].y_chunks);
  EXPECT_EQ(d.shards[0].hdf5_only_reason, "");
  const Images images(7);
  const std::string bytes = test::content(d.shards[0].path);
  EXPECT_EQ(bytes.compare(d.shards[0].x_offset, 7 * 48, reinterpret_cast<const char*>(images.x.data()), 7 * 48), 0);
}

TEST(Shards, EveryRankHasTheSameIndex) {
  const TemporaryFolder folder;
  write_images(folder / "a.h5", {7, 4, 4, 3}, {7});
  std::vector<ShardIndex> all(3);
  run_thread_world(
      3, [&](World& world) { all[std::size_t(world.rank())] = index_shards(world, {.paths = {folder / "a.h5"}}); });
  for (const ShardIndex& d : all) {
    EXPECT_EQ(d.manifest_crc, all[0].manifest_crc);
    EXPECT_EQ(d.rows, 7);
    EXPECT_EQ(d.sample, all[0].sample);
    EXPECT_EQ(d.shards.at(0).x_offset, all[0].shards.at(0).x_offset);
    EXPECT_EQ(d.x.name, "x");
  }
}

TEST(Shards, LayoutFollowsShapeAttributeAndOption) {
  const TemporaryFolder folder;
  write_images(folder / "nchw.h5", {5, 3, 8, 2}, {5, 1});  // labels (N, 1) are labels
  write_images(folder / "nhw.h5", {5, 12, 4}, {5});
  write_images(folder / "flat.h5", {5, 48}, {5});
  const ShardIndex nchw = index_of({.paths = {folder / "nchw.h5"}});
  EXPECT_TRUE(nchw.x.channels_first);
  EXPECT_EQ(nchw.sample, (Shape{8, 2, 3}));
  EXPECT_TRUE(nchw.y.labels);
  EXPECT_EQ(nchw.y.target, Shape{});
  EXPECT_EQ(index_of({.paths = {folder / "nhw.h5"}}).sample, (Shape{12, 4, 1}));
  const ShardIndex flat = index_of({.paths = {folder / "flat.h5"}});
  EXPECT_EQ(flat.sample, (Shape{48}));
  EXPECT_DOUBLE_EQ(flat.values.scale, 1);
  const ShardIndex asked = index_of({.paths = {folder / "nchw.h5"}, .layout = DataOptions::Layout::channels_last});
  EXPECT_FALSE(asked.x.channels_first);
  EXPECT_EQ(asked.sample, (Shape{3, 8, 2}));
}

// One-dimensional signals have the shape of images, so the option or an attribute must select them.
TEST(Shards, SignalsAndVolumesAreReadFromFiles) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, std::vector<std::int64_t> shape, const std::string& layout) {
    io::File file = io::File::create(folder / name);
    file.create_dataset("/x", DType::f32, shape);
    file.create_dataset("/y", DType::i64, {shape[0]});
    file.write_rows("/y", 0, shape[0], DType::i64, Images(std::size_t(shape[0])).y.data());
    if (!layout.empty()) file.set("/", "layout", layout);
    file.close();
  };
  struct Case {
    std::vector<std::int64_t> shape;
    std::string attribute;
    Layout asked;
    Shape sample;
    bool channels_first;
  };
  const auto automatic = Layout::automatic, last = Layout::channels_last, first = Layout::channels_first;
  for (const Case& c :
       {Case{{5, 64, 8}, "", automatic, {64, 8, 1}, false}, Case{{5, 64, 8}, "", last, {64, 8}, false},
        Case{{5, 64, 1}, "", last, {64, 1}, false}, Case{{5, 3, 64}, "", first, {64, 3}, true},
        Case{{5, 64, 8}, "channels_last", automatic, {64, 8}, false},
        Case{{5, 3, 64}, "channels_first", automatic, {64, 3}, true},
        Case{{5, 3, 64}, "channels_first", last, {3, 64}, false},
        Case{{5, 1, 16, 15, 14}, "", automatic, {16, 15, 14, 1}, true},
        Case{{5, 1, 16, 15, 3}, "", automatic, {1, 16, 15, 3}, false},
        Case{{5, 8, 7, 6, 2}, "", automatic, {8, 7, 6, 2}, false},
        Case{{5, 8, 7, 6, 2}, "NCDHW", first, {7, 6, 2, 8}, true}, Case{{5, 48}, "", first, {48}, false}}) {
    write("a.h5", c.shape, c.attribute);
    const ShardIndex d = index_of({.paths = {folder / "a.h5"}, .layout = c.asked});
    EXPECT_EQ(d.sample, c.sample) << d.sample.str() << " for " << c.sample.str();
    EXPECT_EQ(d.x.channels_first, c.channels_first) << c.sample.str();
  }
  write("a.h5", {5, 3, 8, 8}, "NCHW");
  const std::string message = message_of([&] { index_of({.paths = {folder / "a.h5"}}); });
  for (const char* word : {"a.h5", "'NCHW'", "data.layout"})
    EXPECT_NE(message.find(word), std::string::npos) << message;
}

TEST(Shards, UnsupportedDataSetsAreRefusedByFileAndName) {
  const TemporaryFolder folder;
  const Images i(24);  // enough labels for four per row
  const auto refusal = [&](hid_t x, const std::vector<hsize_t>& y_shape) {
    test::write_file(folder / "a.h5", {{"pixels", x, H5T_NATIVE_UINT8, {6, 4, 4, 3}, i.x.data()},
                                       {"classes", H5T_STD_I32LE, H5T_NATIVE_INT64, y_shape, i.y.data()}});
    return message_of([&] { index_of({.paths = {folder / "a.h5"}, .x = "pixels", .y = "classes"}); });
  };
  const std::string wide = refusal(H5T_STD_I64LE, {6}), one_hot = refusal(H5T_STD_U8LE, {6, 4});
  for (const char* word : {"a.h5: 'pixels'", "64-bit integers", "millrace pack"})
    EXPECT_NE(wide.find(word), std::string::npos) << wide;
  for (const char* word : {"a.h5: 'classes'", "4 integers a row", "one-hot"})
    EXPECT_NE(one_hot.find(word), std::string::npos) << one_hot;
}

// The offset of a data set behind an external link refers to another file.
TEST(Shards, LinksIntoOtherFilesAreRefused) {
  const TemporaryFolder folder;
  write_images(folder / "there.h5", {5, 4, 4, 3}, {5});
  const hid_t file = H5Fcreate((folder / "linked.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_external("there.h5", "/x", file, "x", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/x", file, "y", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  const std::string message = message_of([&] { index_of({.paths = {folder / "linked.h5"}}); }, Exit::data);
  EXPECT_NE(message.find("'x' is a link into " + folder / "there.h5"), std::string::npos) << message;
  EXPECT_EQ(index_of({.paths = {folder / "there.h5"}}).rows, 5);
}

TEST(Shards, UnusableStatisticsAreMeasuredAgain) {
  const std::vector<double> odd{0.5, 0.5, std::nan("")}, fine{1, 1, 1}, few{1};
  for (const auto& [mean, std] : {std::pair{odd, fine}, {fine, few}, {fine, std::vector<double>{1, 0, 1}}}) {
    const TemporaryFolder folder;
    write_images(folder / "a.h5", {5, 4, 4, 3}, {5});
    const hid_t file = H5Fopen((folder / "a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
                x = H5Dopen2(file, "x", H5P_DEFAULT);
    for (const auto& [name, values] : {std::pair{"mean", mean}, {"std", std}}) {
      const hsize_t count = values.size();
      const hid_t space = H5Screate_simple(1, &count, nullptr),
                  attribute = H5Acreate2(x, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT);
      H5Awrite(attribute, H5T_NATIVE_DOUBLE, values.data());
      H5Aclose(attribute);
      H5Sclose(space);
    }
    H5Dclose(x);
    H5Fclose(file);
    const ShardIndex d = index_of({.paths = {folder / "a.h5"}});
    EXPECT_TRUE(d.values.mean.empty() && d.values.std.empty());
    EXPECT_NE(d.values.statistics_rejected_reason, "");
  }
}

TEST(Shards, StatisticsOfTheFileFollowTheScale) {
  const TemporaryFolder folder;
  const Images i(5);
  {
    io::File file = io::File::create(folder / "a.h5");
    file.create_dataset("/x", DType::u8, {5, 4, 4, 3});
    file.create_dataset("/y", DType::i64, {5});
    file.write_rows("/x", 0, 5, DType::u8, i.x.data());
    file.write_rows("/y", 0, 5, DType::i64, i.y.data());
    file.set("/", "scale", 0.5);
    file.set("/", "classes", std::int64_t(40));
    file.set("/x", "mean", std::vector<double>{1, 2, 3});
    file.set("/x", "std", std::vector<double>{4, 5, 6});
    file.close();
  }
  const ShardIndex own = index_of({.paths = {folder / "a.h5"}});
  EXPECT_DOUBLE_EQ(own.values.scale, 0.5);
  EXPECT_EQ(own.values.mean, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(own.classes.count, 40);
  const ShardIndex asked = index_of({.paths = {folder / "a.h5"}, .scale = 2});
  EXPECT_DOUBLE_EQ(asked.values.scale, 2);
  EXPECT_EQ(asked.values.mean, (std::vector<double>{4, 8, 12}));
  EXPECT_EQ(asked.values.std, (std::vector<double>{16, 20, 24}));
}

TEST(Shards, MeasuredStatisticsMatchAPlainSumOnAnyRanks) {
  const TemporaryFolder folder;
  write_images(folder / "nchw.h5", {50, 3, 8, 2}, {50});
  const Images i(50);
  std::vector<std::vector<double>> means(6);
  for (int size = 1; size <= 3; ++size)
    run_thread_world(size, [&](World& world) {
      ShardIndex d = index_shards(world, {.paths = {folder / "nchw.h5"}});
      EXPECT_TRUE(d.values.mean.empty());
      measure_statistics(world, d);
      ASSERT_EQ(d.values.mean.size(), 3u);
      for (std::size_t c = 0; c < 3; ++c) {
        double sum = 0, squares = 0;
        for (std::size_t r = 0; r < 50; ++r)
          for (std::size_t p = 0; p < 16; ++p) {
            const double v = i.x[r * 48 + c * 16 + p] / 255.0;
            sum += v;
            squares += v * v;
          }
        const double mean = sum / 800;
        EXPECT_NEAR(d.values.mean[c], mean, 1e-12);
        EXPECT_NEAR(d.values.std[c], std::sqrt(squares / 800 - mean * mean), 1e-9);
      }
      means[std::size_t(size * (size - 1) / 2 + world.rank())] = d.values.mean;
    });
  for (const auto& m : means) EXPECT_EQ(m, means[0]);
}

TEST(Shards, TargetsAreFloats) {
  const TemporaryFolder folder;
  const std::vector<float> x(30, 1.5f), y(10, 2.5f);
  test::write_file(folder / "a.h5", {{"x", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {5, 6}, x.data()},
                                     {"y", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {5, 2}, y.data()}});
  test::write_file(folder / "b.h5", {{"x", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {5, 6}, x.data()},
                                     {"y", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {5}, y.data()}});
  const ShardIndex a = index_of({.paths = {folder / "a.h5"}}), b = index_of({.paths = {folder / "b.h5"}});
  EXPECT_FALSE(a.y.labels);
  EXPECT_EQ(a.y.target, (Shape{2}));
  EXPECT_EQ(a.classes.count, 0);
  EXPECT_FALSE(b.y.labels);
  EXPECT_EQ(b.y.target, (Shape{1}));
}

TEST(Shards, UnusableFilesAreNamedWithTheReason) {
  const TemporaryFolder folder;
  write_images(folder / "good.h5", {7, 4, 4, 3}, {7});
  write_images(folder / "rows.h5", {7, 4, 4, 3}, {6});
  write_images(folder / "shape.h5", {7, 4, 3, 4}, {7});
  write_images(folder / "names.h5", {7, 4, 4, 3}, {7}, "images", "labels");
  write_images(folder / "cut.h5", {700, 4, 4, 3}, {700});
  std::filesystem::resize_file(folder / "cut.h5", 9000);
  std::ofstream(folder / "text.h5") << "not a data set";
  const std::pair<std::vector<std::string>, std::vector<std::string>> cases[] = {
      {{folder / "none-*.h5"}, {"none-*.h5", "no file"}},
      {{folder / "absent.h5"}, {"absent.h5"}},
      {{folder / "rows.h5"}, {"rows.h5", "7", "6"}},
      {{folder / "good.h5", folder / "shape.h5"}, {"shape.h5", "4x3x4", "4x4x3", "good.h5"}},
      {{folder / "names.h5"}, {"names.h5", "images", "labels", "data.x"}},
      {{folder / "cut.h5"}, {"cut.h5", "truncated"}},
      {{folder / "text.h5"}, {"text.h5", "not an HDF5 file"}},
  };
  for (const auto& [paths, words] : cases) {
    const std::string message = message_of([&paths = paths] { index_of({.paths = paths}); });
    for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << ": " << message;
  }
  EXPECT_EQ(index_of({.paths = {folder / "names.h5"}, .x = "images", .y = "labels"}).rows, 7);
}

TEST(Shards, AFailureReachesEveryRank) {
  std::atomic<int> failed{0};
  run_thread_world(3, [&](World& world) {
    const std::string message = message_of([&] { index_shards(world, {.paths = {"/nowhere/at-all-*.h5"}}); });
    failed += message.find("at-all") != std::string::npos;
  });
  EXPECT_EQ(failed, 3);
}

TEST(Shards, TheManifestChangesWithTheFiles) {
  const TemporaryFolder folder;
  write_images(folder / "a.h5", {7, 4, 4, 3}, {7});
  const auto before = index_of({.paths = {folder / "a.h5"}}).manifest_crc;
  EXPECT_EQ(index_of({.paths = {folder / "a.h5"}}).manifest_crc, before);
  write_images(folder / "a.h5", {8, 4, 4, 3}, {8});
  EXPECT_NE(index_of({.paths = {folder / "a.h5"}}).manifest_crc, before);
}

TEST(Shards, SyntheticSpecsAreParsedAndChecked) {
  const ShardIndex d = index_of({.paths = {"synthetic:images:rows=123,shape=8x6x3,classes=4,seed=9"}});
  EXPECT_TRUE(d.synthetic());
  EXPECT_EQ(d.rows, 123);
  EXPECT_EQ(d.sample, (Shape{8, 6, 3}));
  EXPECT_EQ(d.classes.count, 4);
  for (const char* wrong : {"synthetic:sounds", "synthetic:images:rows=0", "synthetic:images:rows=x",
                            "synthetic:images:colour=red", "synthetic:images:shape=", "synthetic:images:shape=8x0"})
    EXPECT_NE(message_of([&] { index_of({.paths = {wrong}}); }, Exit::config).find("synthetic"), std::string::npos);
}

// A 4 x 3 x 6 array and a column of 6 labels as MATLAB's save -v7.3 writes them: reversed dimensions, with a user
// block.
TEST(Shards, MatlabColumnsAreExplainedAndRowsAreRead) {
  const TemporaryFolder folder;
  const auto put = [&](const std::vector<hsize_t>& y_shape) {
    const std::string path = folder / "a.mat";
    const std::vector<std::uint8_t> x(72, 3), y(6, 1);
    test::write_file(path,
                     {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {6, 3, 4}, x.data()},
                      {"y", H5T_STD_U8LE, H5T_NATIVE_UINT8, y_shape, y.data()}},
                     512);
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 5);
    for (const char* name : {"x", "y"}) {
      const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
      const hid_t attribute = H5Acreate2(dataset, "MATLAB_class", type, space, H5P_DEFAULT, H5P_DEFAULT);
      H5Awrite(attribute, type, "uint8");
      H5Aclose(attribute);
      H5Sclose(space);
      H5Dclose(dataset);
    }
    H5Tclose(type);
    H5Fclose(file);
    return path;
  };
  const auto world = solo_world();
  const std::string message = message_of([&] { index_shards(*world, {.paths = {put({1, 6})}}); });
  EXPECT_NE(message.find("save y as 1 x N"), std::string::npos) << message;
  const ShardIndex d = index_shards(*world, {.paths = {put({6, 1})}});
  EXPECT_EQ(d.rows, 6);
  EXPECT_EQ(d.sample, (Shape{3, 4, 1}));
}

}  // namespace
}  // namespace millrace
