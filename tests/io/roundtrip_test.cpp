#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "files.hpp"
#include "millrace/base/error.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {
namespace roundtrip_test {

using test::TemporaryFolder;

std::vector<unsigned char> pattern(std::size_t bytes) {
  std::vector<unsigned char> p(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    p[i] = static_cast<unsigned char>((i * 37 + 11) % 120);  // no value is NaN in any type
  return p;
}

class RoundtripOfType : public testing::TestWithParam<DType> {};

TEST_P(RoundtripOfType, BytesAreReadBack) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const std::vector<std::vector<std::int64_t>> shapes{{1}, {597}, {7, 5, 3}, {3, 2, 2, 2, 2, 5}};
  const DType dtype = GetParam();
  {
    File file = File::create(path);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::string name = fmt::format("/deep/er/x{}", i);
      const auto count = std::accumulate(shapes[i].begin(), shapes[i].end(), std::int64_t(1), std::multiplies<>());
      file.create_dataset(name, dtype, shapes[i]);
      file.write_rows(name, 0, shapes[i][0], dtype, pattern(std::size_t(count) * size_of(dtype)).data());
    }
    file.close();
  }
  const File file = File::open(path);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::string name = fmt::format("/deep/er/x{}", i);
    const DatasetInfo info = file.info(name);
    EXPECT_EQ(info.dtype, dtype);
    EXPECT_EQ(info.shape, shapes[i]);
    EXPECT_FALSE(info.big_endian);
    EXPECT_FALSE(info.chunked);
    EXPECT_EQ(info.unsupported_reason, "");
    const auto count = std::accumulate(shapes[i].begin(), shapes[i].end(), std::int64_t(1), std::multiplies<>());
    std::vector<unsigned char> back(std::size_t(count) * size_of(dtype));
    file.read_rows(name, 0, shapes[i][0], dtype, back.data());
    EXPECT_EQ(back, pattern(back.size())) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Roundtrip, RoundtripOfType,
                         testing::Values(DType::u8, DType::i8, DType::u16, DType::i16, DType::i32, DType::i64,
                                         DType::f16, DType::bf16, DType::f32, DType::f64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Roundtrip, ValuesAreConverted) {
  const TemporaryFolder folder;
  const std::vector<float> values{0, 1, -2.5f, 65504, 1e-4f, 300};
  File file = File::create(folder / "a.h5");
  for (const DType dtype : {DType::f16, DType::bf16, DType::u8, DType::i64}) {
    const std::string name = name_of(dtype);
    file.create_dataset(name, dtype, {3, 2});
    file.write_rows(name, 0, 3, DType::f32, values.data());
    std::vector<float> back(6);
    file.read_rows(name, 0, 3, DType::f32, back.data());
    for (std::size_t i = 0; i < 6; ++i) {
      float expected = values[i];
      if (dtype == DType::f16) expected = float(f16(values[i]));
      if (dtype == DType::bf16) expected = float(bf16(values[i]));
      if (dtype == DType::u8) expected = values[i] < 0 ? 0 : values[i] > 255 ? 255 : std::trunc(values[i]);  // clamped
      if (dtype == DType::i64) expected = std::trunc(values[i]);
      EXPECT_EQ(back[i], expected) << name << " " << i;
    }
  }
}

TEST(Roundtrip, RowsAreReadInAnyOrder) {
  const TemporaryFolder folder;
  File file = File::create(folder / "a.h5");
  file.create_dataset("x", DType::i32, {10, 3});
  for (const std::int32_t row : {9, 0, 4, 5, 3, 8, 1, 2, 7, 6}) {
    const std::int32_t values[3] = {row, row * 10, row * 100};
    file.write_rows("x", row, 1, DType::i32, values);
  }
  std::int32_t back[12];
  file.read_rows("/x", 3, 4, DType::i32, back);
  for (int row = 0; row < 4; ++row) EXPECT_EQ(back[row * 3 + 2], (row + 3) * 100);
  EXPECT_EQ(file.bytes_written(), 120u);
  EXPECT_EQ(file.bytes_read(), 48u);
}

TEST(Roundtrip, ZeroRowsAreAllowed) {
  const TemporaryFolder folder;
  File file = File::create(folder / "a.h5");
  file.create_dataset("x", DType::f32, {4, 2});
  file.create_dataset("none", DType::f32, {0, 2});
  file.write_rows("x", 4, 0, DType::f32, nullptr);
  file.read_rows("none", 0, 0, DType::f32, nullptr, File::Transfer::collective);
  EXPECT_EQ(file.bytes_written(), 0u);
}

TEST(Roundtrip, ListsDatasetsDepthFirst) {
  const TemporaryFolder folder;
  File file = File::create(folder / "a.h5");
  for (const char* name : {"/b/z", "/a", "/b/a/x", "/c"}) file.create_dataset(name, DType::u8, {1});
  EXPECT_EQ(file.datasets(), (std::vector<std::string>{"/a", "/b/a/x", "/b/z", "/c"}));
  EXPECT_TRUE(file.has("b/z"));
  EXPECT_FALSE(file.has("/b"));  // a group
  EXPECT_FALSE(file.has("/b/z/q"));
}

}  // namespace roundtrip_test
}  // namespace millrace::io
