// Scale, offset and statistics of the values that files store, and transforms of them.
#include <gtest/gtest.h>

#include <cmath>

#include "data/files.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace values_test {

using test::message_of;
using test::TemporaryFolder;

// Writes int16 values packed by the CF conventions, with a different factor for each data set.
std::string write_filtered(const TemporaryFolder& folder, const std::string& name, double factor_of_u) {
  const std::string path = folder / name;
  io::File file = io::File::create(path);
  std::vector<std::int16_t> u(20 * 12), v(20 * 24);
  for (std::size_t i = 0; i < u.size(); ++i) u[i] = std::int16_t(i * 37 % 1001);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::int16_t(i * 91 % 2003) - 1000;
  const std::vector<float> y(20, 0.5f);
  file.create_dataset("/u", DType::i16, {20, 6, 2});
  file.create_dataset("/v", DType::i16, {20, 6, 2, 2});
  file.create_dataset("/y", DType::f32, {20});
  file.write_rows("/u", 0, 20, DType::i16, u.data());
  file.write_rows("/v", 0, 20, DType::i16, v.data());
  file.write_rows("/y", 0, 20, DType::f32, y.data());
  file.set("/u", "scale_factor", factor_of_u);
  file.set("/u", "add_offset", 2.0);
  file.set("/v", "scale_factor", 0.001);
  file.set("/v", "add_offset", 273.15);
  file.close();
  return path;
}

TEST(Values, EachDataSetHasItsOwnScaleAndOffset) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  const std::string path = write_filtered(folder, "a.h5", 0.01);
  for (const Transform transform : {Transform::none, Transform::log1p}) {
    ShardIndex d = index_shards(*world, {.paths = {path}, .x = "u,v", .transform = transform});
    EXPECT_EQ(d.values.channel_scale, (std::vector<double>{0.01, 0.001, 0.001}));
    EXPECT_EQ(d.values.channel_offset, (std::vector<double>{2, 273.15, 273.15}));
    measure_statistics(*world, d);
    double sum[3] = {0, 0, 0}, squares[3] = {0, 0, 0};
    for (std::size_t i = 0; i < 240; ++i) {
      const double values[3] = {double(i * 37 % 1001) * 0.01 + 2, (double(2 * i * 91 % 2003) - 1000) * 0.001 + 273.15,
                                (double((2 * i + 1) * 91 % 2003) - 1000) * 0.001 + 273.15};
      for (int c = 0; c < 3; ++c) {
        const double v = transform == Transform::log1p ? std::log1p(values[c]) : values[c];
        sum[c] += v / 240;
        squares[c] += v * v / 240;
      }
    }
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(d.values.mean[c], sum[c], 1e-9 * sum[c]);
      EXPECT_NEAR(d.values.std[c], std::sqrt(squares[c] - sum[c] * sum[c]), 1e-5);
    }
  }
  const ShardIndex asked = index_shards(*world, {.paths = {path}, .x = "v", .scale = 3, .offset = -1});
  EXPECT_EQ(asked.values.scale, 3);
  EXPECT_EQ(asked.values.offset, -1);
  const std::string other = write_filtered(folder, "b.h5", 0.02);
  const std::string message = message_of([&] { index_shards(*world, {.paths = {path, other}, .x = "u"}); });
  EXPECT_NE(message.find("b.h5: values of 'u' are stored * 0.02 + 2"), std::string::npos) << message;
  EXPECT_EQ(index_shards(*world, {.paths = {path, other}, .x = "v"}).rows, 40);
}

TEST(Values, PackKeepsScaleAndOffsetAndMeasuresTransformedValues) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  ImportOptions in;
  in.x = {write_filtered(folder, "a.h5", 0.01)};
  in.x_name = "u";
  in.layout = Layout::channels_last;
  PackOptions out{.out = folder / "packed"};
  out.transform = Transform::log1p;
  const auto report = pack(*world, *make_importer(in), out);
  const auto index = [&](Transform t) { return index_shards(*world, {.paths = report.files, .transform = t}); };
  const ShardIndex packed = index(Transform::log1p);
  EXPECT_EQ(packed.values.scale, 0.01);
  EXPECT_EQ(packed.values.offset, 2);
  EXPECT_EQ(packed.values.statistics_rejected_reason, "");
  ShardIndex measured = packed;
  measure_statistics(*world, measured);
  ASSERT_EQ(packed.values.mean.size(), 2u);
  for (std::size_t c = 0; c < 2; ++c) {
    EXPECT_NEAR(packed.values.mean[c], measured.values.mean[c], 1e-12);
    EXPECT_NEAR(packed.values.std[c], measured.values.std[c], 1e-9);
  }
  EXPECT_NE(index(Transform::none).values.statistics_rejected_reason, "");
}

TEST(Values, StatisticsOfOtherValuesAreConvertedOrRejected) {
  const TemporaryFolder folder;
  const auto world = solo_world();
  const std::string path = folder / "a.h5";
  const std::vector<float> x{1, 2, 3, -2}, y{0, 0, 0, 0};
  const auto write = [&](const std::string& transform) {
    io::File file = io::File::create(path);
    file.create_dataset("/x", DType::f32, {4, 1});
    file.create_dataset("/y", DType::f32, {4});
    file.write_rows("/x", 0, 4, DType::f32, x.data());
    file.write_rows("/y", 0, 4, DType::f32, y.data());
    file.set("/", "scale", 0.5);
    file.set("/", "offset", 10.0);
    file.set("/x", "mean", std::vector<double>{11});
    file.set("/x", "std", std::vector<double>{4});
    if (!transform.empty()) file.set("/x", "transform", transform);
    file.close();
  };
  const auto index = [&](double scale, double offset, Transform t) {
    return index_shards(*world, {.paths = {path}, .scale = scale, .offset = offset, .transform = t});
  };
  write("");
  EXPECT_EQ(index(0, offset_from_files, Transform::none).values.mean, std::vector<double>{11});
  const ShardIndex other = index(2, 3, Transform::none);  // (11 - 10) * 4 + 3
  EXPECT_EQ(other.values.mean, std::vector<double>{7});
  EXPECT_EQ(other.values.std, std::vector<double>{16});
  EXPECT_EQ(index(0, offset_from_files, Transform::log1p).values.mean.size(), 0u);
  EXPECT_NE(index(0, offset_from_files, Transform::log1p).values.statistics_rejected_reason.find("transform none"),
            std::string::npos);
  write("log1p");
  EXPECT_EQ(index(0, offset_from_files, Transform::log1p).values.mean, std::vector<double>{11});
  EXPECT_EQ(index(2, offset_from_files, Transform::log1p).values.mean.size(), 0u);
  EXPECT_EQ(index(0, offset_from_files, Transform::none).values.mean.size(), 0u);
  ShardIndex below = index(1, 0, Transform::log1p);
  const std::string message = message_of([&] { measure_statistics(*world, below); });
  for (const char* word : {"a.h5", "channel 0", "log1p", "above -1"})
    EXPECT_NE(message.find(word), std::string::npos) << message;
}

}  // namespace values_test
}  // namespace millrace
