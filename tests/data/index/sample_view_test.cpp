// Pairs and windows are compared with a plain implementation of their definition. Unsuitable arrays are refused.
#include "millrace/data/index/sample_view.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>

#include "data/index/sample_views.hpp"

namespace millrace {
namespace sample_view_test {

using test::expect_the_same_everywhere;
using test::index_of;
using test::message_of;
using test::pairs;
using test::patches_of;
using test::read_all;
using test::Scene;
using test::TemporaryFolder;
using test::windows;

// A series of two features in files of 6, 1 and 4 rows.
struct Series {
  TemporaryFolder folder;
  explicit Series(bool chunked) {
    float at = 1;
    for (const hsize_t rows : {6, 1, 4}) {
      std::vector<float> x(rows * 2);
      for (float& v : x) v = at *= -1.25f;
      test::write_file(folder / ("part" + std::to_string(rows == 6   ? 0
                                                         : rows == 1 ? 1
                                                                     : 2)),
                       {{"x",
                         H5T_IEEE_F32LE,
                         H5T_NATIVE_FLOAT,
                         {rows, 2},
                         x.data(),
                         chunked ? std::vector<hsize_t>{1, 2} : std::vector<hsize_t>{}}});
    }
  }
};

TEST(SampleView, PairsStayInTheirFileAndTargetsAreNormalisedLikeInputs) {
  for (const bool chunked : {false, true}) {
    const Series series(chunked);
    ShardIndex index = index_of(series.folder / "part*", pairs(2));
    EXPECT_EQ(index.rows, 4 + 0 + 2);
    EXPECT_EQ(index.y.target, (Shape{2}));
    EXPECT_FALSE(index.y.labels);
    index.values.mean = {0.5, -1};
    index.values.std = {2, 4};
    index.values.scale = 3;
    const auto power = [](int n) {  // the value number n
      float at = 1;
      for (int i = 0; i <= n; ++i) at *= -1.25f;
      return at;
    };
    const int rows[] = {0, 1, 2, 3, 7, 8};
    for (const bool normalize : {true, false}) {
      index.values.normalize_targets = normalize;
      const auto all = read_all(index, *make_source(*solo_world(), index, Reader::automatic));
      for (std::size_t i = 0; i < 6; ++i)
        for (int f = 0; f < 2; ++f) {
          float x = 0, y = 0;
          std::memcpy(&x, all[i].data() + 4 * f, 4);
          std::memcpy(&y, all[i].data() + 8 + 4 * f, 4);
          EXPECT_EQ(x, power(2 * rows[i] + f));
          const double value = 3.0 * double(power(2 * (rows[i] + 2) + f)), mean = f ? -1 : 0.5, std = f ? 4 : 2;
          EXPECT_NEAR(y, normalize ? (value - mean) / std : value, 1e-5 * std::abs(value)) << "sample " << i;
        }
    }
    expect_the_same_everywhere(index);
  }
}

TEST(SampleView, TargetsOfPairsAreChannelsLast) {
  const TemporaryFolder folder;
  std::vector<std::int16_t> x(3 * 2 * 4 * 5);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::int16_t(i);
  test::write_file(folder / "f.h5", {{"x", H5T_STD_I16BE, H5T_NATIVE_INT16, {3, 2, 4, 5}, x.data()}});
  const ShardIndex index =
      index_shards(*solo_world(), {.paths = {folder / "f.h5"}, .layout = Layout::channels_first, .view = pairs(1)});
  EXPECT_EQ(index.y.target, (Shape{4, 5, 2}));
  const auto all = read_all(index, *make_source(*solo_world(), index, Reader::mmap));
  for (std::size_t p = 0; p < 20; ++p)
    for (std::size_t c = 0; c < 2; ++c) {
      float y = 0;
      std::memcpy(&y, all[1].data() + 80 + 4 * (2 * p + c), 4);
      EXPECT_EQ(y, float(80 + c * 20 + p));
    }
}

struct TokenType {
  hid_t stored;
  DType dtype;
};

// Texts of 23, 5 and 40 tokens, or rows of 10, 4 and 12. The label is the token after the window.
TEST(SampleView, WindowsMatchTheDefinitionForEveryTypeAndStorage) {
  const TemporaryFolder folder;
  const auto token = [](std::int64_t at) { return std::uint32_t((at * 37 + at / 3) % 200); };
  for (const TokenType& type :
       {TokenType{H5T_STD_U8LE, DType::u8}, TokenType{H5T_STD_U16BE, DType::u16}, TokenType{H5T_STD_U32LE, DType::i32},
        TokenType{H5T_STD_U32BE, DType::i32}, TokenType{H5T_STD_I32LE, DType::i32}})
    for (const bool chunked : {false, true})
      for (const auto& shapes : {std::vector<std::vector<hsize_t>>{{23}, {5}, {40}},
                                 std::vector<std::vector<hsize_t>>{{3, 10}, {1, 4}, {2, 12}}}) {
        std::int64_t at = 0;
        std::vector<std::vector<std::uint32_t>> texts;
        for (std::size_t f = 0; f < shapes.size(); ++f) {
          const auto& shape = shapes[f];
          std::vector<std::uint32_t> x;
          for (hsize_t r = 0; r < (shape.size() > 1 ? shape[0] : 1); ++r) {
            texts.emplace_back();
            for (hsize_t i = 0; i < shape.back(); ++i) texts.back().push_back(token(at++));
            x.insert(x.end(), texts.back().begin(), texts.back().end());
          }
          std::vector<hsize_t> chunk = shape;
          for (hsize_t& extent : chunk) extent = std::min<hsize_t>(extent, 3);
          test::write_file(folder / fmt::format("text{}", f), {{"x", type.stored, H5T_NATIVE_UINT32, shape, x.data(),
                                                                chunked ? chunk : std::vector<hsize_t>{}}});
        }
        std::uint32_t largest = 0;
        for (const auto& text : texts)
          for (const std::uint32_t t : text) largest = std::max(largest, t);
        for (const auto& [length, stride] :
             std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {4, 2}, {9, 1}, {4, 7}}) {
          std::vector<std::vector<std::uint32_t>> expected;
          for (const auto& text : texts)
            for (std::int64_t first = 0; first + length < std::int64_t(text.size()); first += stride)
              expected.emplace_back(text.begin() + first, text.begin() + first + length + 1);
          const ShardIndex index = index_of(folder / "text*", windows(length, stride));
          ASSERT_EQ(index.rows, std::int64_t(expected.size())) << length << " every " << stride;
          EXPECT_EQ(index.sample, (Shape{length}));
          EXPECT_EQ(index.x.dtype, type.dtype);
          EXPECT_EQ(index.classes.count, std::int64_t(largest) + 1);
          for (const Reader reader : {Reader::direct, Reader::mmap}) {
            if (chunked && reader == Reader::mmap) continue;
            const auto all = read_all(index, *make_source(*solo_world(), index, reader));
            for (std::size_t i = 0; i < all.size(); ++i) {
              std::vector<std::uint32_t> found;
              for (std::int64_t t = 0; t < length; ++t) {
                std::uint32_t value = 0;  // assumes a little-endian machine
                std::memcpy(&value, all[i].data() + std::size_t(t) * size_of(type.dtype), size_of(type.dtype));
                found.push_back(value);
              }
              found.emplace_back();
              std::memcpy(&found.back(), all[i].data() + index.sample_bytes(), 4);
              ASSERT_EQ(found, expected[i]) << "sample " << i << " of windows of " << length << " every " << stride;
            }
          }
        }
      }
  expect_the_same_everywhere(index_of(folder / "text*", windows(4, 2)));
}

TEST(SampleView, ATokenAboveTheVocabularyIsADataError) {
  const TemporaryFolder folder;
  const std::vector<std::uint32_t> x{1, 2, 3, 4, 9, 5, 0xffffffffu, 1, 1, 1};
  test::write_file(folder / "small", {{"x", H5T_STD_U16LE, H5T_NATIVE_UINT32, {6}, x.data()}});
  const ShardIndex small = index_of(folder / "small", windows(2, 1, 9));
  const auto source = make_source(*solo_world(), small, Reader::automatic);
  const std::string message = message_of([&] { read_all(small, *source); });
  EXPECT_NE(message.find("token 9 of"), std::string::npos) << message;
  EXPECT_NE(message.find("position 4) is not below the vocabulary of 9"), std::string::npos) << message;
  const auto skip = make_source(*solo_world(), small, Reader::automatic, {.on_error = OnError::skip});
  read_all(small, *skip);
  EXPECT_EQ(skip->faults().skipped_samples, 2u);  // those that contain it or have it as their label
  test::write_file(folder / "large", {{"x", H5T_STD_U32LE, H5T_NATIVE_UINT32, {10}, x.data()}});
  const std::string counted = message_of([&] { index_of(folder / "large", windows(2, 1)); });
  EXPECT_NE(counted.find("4294967295) at position 6"), std::string::npos) << counted;
  const ShardIndex large = index_of(folder / "large", windows(2, 1, 10));
  const auto unsaid = make_source(*solo_world(), large, Reader::automatic);
  const std::string read = message_of([&] { read_all(large, *unsaid); });
  EXPECT_NE(read.find("token 4294967295 of"), std::string::npos) << read;
}

TEST(SampleView, UnsuitableArraysAreRefusedWithTheReason) {
  const TemporaryFolder folder;
  Scene scene;
  scene.write(folder / "scene.h5");
  const auto refused = [&](const std::string& path, const SampleView& view, const std::string& words,
                           Exit code = Exit::data) {
    const std::string message = message_of([&] { index_of(path, view); }, code);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused(folder / "scene.h5", patches_of(4), "data.patch: 4 is not the side", Exit::config);
  refused(folder / "scene.h5", patches_of(15), "patches of 15x15 do not fit a scene of 11x7");
  refused(folder / "scene.h5", patches_of(3, 1), "outside the held-out blocks");
  SampleView mixed = patches_of(3);
  mixed.lead = 2;
  refused(folder / "scene.h5", mixed, "data.lead does nothing without data.sample = pair", Exit::config);
  refused(folder / "scene.h5", pairs(11), "later in its file. lower data.lead");
  refused(folder / "scene.h5", windows(3, 1), "'x' to be one text, or one text per row");
  refused(folder / "scene.h5", windows(0, 1), "data.window", Exit::config);
  const std::vector<std::uint8_t> text(5, 1);
  test::write_file(folder / "text.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {5}, text.data()}});
  refused(folder / "text.h5", windows(5, 1), "no text is longer than a window of 5 tokens");
  refused("synthetic:images:rows=50,shape=4x4x1,classes=2,seed=1", pairs(1), "data.sample", Exit::config);
  scene.map.assign(scene.map.size(), 0);
  scene.map[5] = -1;
  scene.write(folder / "empty.h5");
  refused(folder / "empty.h5", patches_of(3), "no pixel of '/y' is labelled");
  scene.width = 6;
  scene.map.resize(66);
  std::vector<float> floats(66, 1);
  test::write_file(folder / "floats.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {11, 6, 2}, floats.data()},
                                          {"y", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {11, 6}, floats.data()}});
  refused(folder / "floats.h5", patches_of(3), "a map of integers");
  const std::vector<std::uint8_t> map(50, 1);
  test::write_file(folder / "sizes.h5", {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {6, 5, 2}, floats.data()},
                                         {"y", H5T_STD_U8LE, H5T_NATIVE_UINT8, {5, 6}, map.data()}});
  refused(folder / "sizes.h5", patches_of(3), "needs the scene's height and width");
  const ShardIndex index = index_of(folder / "scene.h5", patches_of(3));
  for (const Reader reader : {Reader::uring, Reader::mpio}) {
    const std::string message = message_of([&] { make_source(*solo_world(), index, reader); }, Exit::config);
    EXPECT_NE(message.find("data.sample = patch extracts samples from an array"), std::string::npos) << message;
  }
}

}  // namespace sample_view_test
}  // namespace millrace
