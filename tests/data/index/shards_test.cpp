#include "millrace/data/index/shards.hpp"

#include <gtest/gtest.h>

#include "data/index/image_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace shards_test {

using test::Images;
using test::index_of;
using test::message_of;
using test::TemporaryFolder;
using test::write_images;

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

}  // namespace shards_test
}  // namespace millrace
