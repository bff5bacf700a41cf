// Files and data sets that the shard index refuses, by name and with the reason.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "data/index/image_shards.hpp"

namespace millrace {
namespace shard_refusals_test {

using test::Images;
using test::index_of;
using test::message_of;
using test::TemporaryFolder;
using test::write_images;

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

}  // namespace shard_refusals_test
}  // namespace millrace
