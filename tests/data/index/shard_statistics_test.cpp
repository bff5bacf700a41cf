// Mean and standard deviation of a data set: from attributes of its files, or measured.
#include <gtest/gtest.h>

#include <cmath>

#include "data/index/image_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace shard_statistics_test {

using test::Images;
using test::index_of;
using test::TemporaryFolder;
using test::write_images;

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

}  // namespace shard_statistics_test
}  // namespace millrace
