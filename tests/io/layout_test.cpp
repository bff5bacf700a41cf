#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <numeric>

#include "files.hpp"
#include "millrace/base/error.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {
namespace layout_test {

using test::Recipe;
using test::TemporaryFolder;

std::vector<std::int32_t> numbers(std::size_t count) {
  std::vector<std::int32_t> v(count);
  std::iota(v.begin(), v.end(), 1000);
  return v;
}

std::vector<std::int32_t> all_rows(const File& file, const std::string& name) {
  const DatasetInfo info = file.info(name);
  std::int64_t count = 1;
  for (const auto extent : info.shape) count *= extent;
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  file.read_rows(name, 0, info.shape[0], DType::i32, values.data());
  return values;
}

template <class T>
std::vector<T> raw(const std::string& path, std::uint64_t offset, std::size_t count) {
  const auto bytes = test::bytes_at(path, offset, count * sizeof(T));
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

TEST(Layout, OwnDatasetsAreContiguousAndAligned) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const auto values = numbers(2111 * 3);
  {
    File file = File::create(path);
    for (const char* name : {"x", "y", "group/z"}) {
      file.create_dataset(name, DType::i32, {2111, 3});
      const std::uint64_t early = file.info(name).offset.value();  // allocated before any write
      EXPECT_EQ(early % 4096, 0u) << name;
      file.set(name, "note", std::string(100, 'n'));
      file.write_rows(name, 0, 2111, DType::i32, values.data());
      EXPECT_EQ(file.info(name).offset, early);
    }
    file.close();
  }
  const File file = File::open(path);
  for (const char* name : {"x", "y", "group/z"}) {
    const std::uint64_t offset = file.info(name).offset.value();
    EXPECT_EQ(offset % 4096, 0u) << name;
    EXPECT_EQ(raw<std::int32_t>(path, offset, values.size()), values) << name;
  }
}

TEST(Layout, NewDatasetsAreNotFilled) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  {
    File file = File::create(path);
    file.create_dataset("x", DType::u8, {64 << 20});
    file.close();
  }
  EXPECT_GE(std::filesystem::file_size(path), 64u << 20);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_LT(status.st_blocks * 512, 1 << 20) << "the space was written, not only allocated";
}

TEST(Layout, TheOffsetIsThePositionOfTheBytes) {
  const TemporaryFolder folder;
  const auto values = numbers(105);
  for (const hsize_t user_block : {hsize_t(0), hsize_t(512), hsize_t(65536)}) {
    const std::string path = folder / fmt::format("block{}.h5", user_block);
    Recipe recipe;
    recipe.user_block = user_block;
    test::write_foreign(path, recipe, H5T_NATIVE_INT32, values.data());
    const File file = File::open(path);
    const DatasetInfo info = file.info("x");
    ASSERT_TRUE(info.offset) << user_block;
    EXPECT_EQ(raw<std::int32_t>(path, *info.offset, values.size()), values) << user_block;
    EXPECT_EQ(all_rows(file, "x"), values);
  }
}

TEST(Layout, BigEndianIsFlaggedAndConverted) {
  const TemporaryFolder folder;
  const auto values = numbers(105);
  Recipe recipe;
  recipe.type = H5T_STD_I32BE;
  test::write_foreign(folder / "a.h5", recipe, H5T_NATIVE_INT32, values.data());
  const File file = File::open(folder / "a.h5");
  const DatasetInfo info = file.info("x");
  EXPECT_TRUE(info.big_endian);
  EXPECT_EQ(all_rows(file, "x"), values);
  EXPECT_EQ(raw<std::int32_t>(file.path(), info.offset.value(), 1)[0], std::int32_t(__builtin_bswap32(1000)));
}

TEST(Layout, ChunkIndexFindsTheBytes) {
  const TemporaryFolder folder;
  const auto values = numbers(105);
  for (const hsize_t user_block : {hsize_t(0), hsize_t(1024)}) {
    const std::string path = folder / fmt::format("block{}.h5", user_block);
    Recipe recipe;
    recipe.chunk = {2, 5, 3};
    recipe.user_block = user_block;
    test::write_foreign(path, recipe, H5T_NATIVE_INT32, values.data());
    const File file = File::open(path);
    const auto chunks = file.chunks("x");
    ASSERT_EQ(chunks.size(), 4u);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      EXPECT_EQ(chunks[c].bytes, 2 * 15 * 4u);
      const std::size_t inside = std::min<std::size_t>(30, 105 - 30 * c);  // the last chunk reaches past the end
      const auto found = raw<std::int32_t>(path, chunks[c].offset, inside);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), values.begin() + 30 * c)) << user_block << " chunk " << c;
    }
  }
}

TEST(Layout, ChunksAreInRowMajorOrderAndUnwrittenOnesAreEmpty) {
  const TemporaryFolder folder;
  Recipe recipe;
  recipe.shape = {4, 4};
  recipe.chunk = {2, 2};
  test::write_foreign(folder / "a.h5", recipe, H5T_NATIVE_INT32, nullptr);
  {
    const hid_t file = H5Fopen((folder / "a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT), space = H5Dget_space(dataset);
    const hsize_t start[2] = {2, 0}, count[2] = {1, 1};
    const hid_t one = H5Screate_simple(2, count, nullptr);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
    const std::int32_t value = 7;
    H5Dwrite(dataset, H5T_NATIVE_INT32, one, space, H5P_DEFAULT, &value);
    H5Sclose(one);
    H5Sclose(space);
    H5Dclose(dataset);
    H5Fclose(file);
  }
  const auto chunks = File::open(folder / "a.h5").chunks("x");
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[0].bytes, 0u);
  EXPECT_EQ(chunks[1].bytes, 0u);
  EXPECT_EQ(chunks[2].bytes, 16u);
  EXPECT_EQ(chunks[3].bytes, 0u);
}

TEST(Layout, CompressedRowsAreRead) {
  const TemporaryFolder folder;
  const auto values = numbers(597 * 43);
  Recipe recipe;
  recipe.shape = {597, 43};
  recipe.chunk = {100, 40};
  recipe.gzip = true;
  test::write_foreign(folder / "a.h5", recipe, H5T_NATIVE_INT32, values.data());
  const File file = File::open(folder / "a.h5");
  const DatasetInfo info = file.info("x");
  EXPECT_TRUE(info.chunked);
  EXPECT_FALSE(info.offset);
  EXPECT_EQ(info.chunk, (std::vector<std::int64_t>{100, 40}));
  EXPECT_EQ(info.filters, (std::vector<std::string>{"shuffle", "gzip"}));
  EXPECT_EQ(all_rows(file, "x"), values);
  std::vector<std::int32_t> row(43);
  file.read_rows("x", 596, 1, DType::i32, row.data());
  EXPECT_EQ(row, std::vector<std::int32_t>(values.end() - 43, values.end()));
}

}  // namespace layout_test
}  // namespace millrace::io
