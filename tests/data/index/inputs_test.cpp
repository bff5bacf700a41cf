// Several inputs of a network: every reader puts each at its place in the bytes of a sample.
#include "millrace/data/index/inputs.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "data/files.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/reader_choice.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/read/sources.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace millrace {
namespace inputs_test {

using test::message_of;
using test::TemporaryFolder;

constexpr hsize_t rows = 40;
constexpr std::size_t image_bytes = 5 * 7 * 3;
unsigned char pixel(std::size_t row, std::size_t i) { return static_cast<unsigned char>(row * 31 + i); }
float meta(std::size_t row, std::size_t i) { return float(row) / 3 - float(i); }

std::string write_file(const TemporaryFolder& folder, hsize_t chunk, hid_t meta_type = H5T_IEEE_F32LE) {
  std::vector<unsigned char> image;
  std::vector<float> values;
  std::vector<int> labels;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < image_bytes; ++i) image.push_back(pixel(r, i));
    for (std::size_t i = 0; i < 4; ++i) values.push_back(meta(r, i));
    labels.push_back(int(r % 6));
  }
  const auto chunks = [&](std::vector<hsize_t> shape) { return chunk ? shape : std::vector<hsize_t>(); };
  const std::string path = folder / "inputs.h5";
  test::write_file(path,
                   {{"image", H5T_STD_U8LE, H5T_NATIVE_UCHAR, {rows, 5, 7, 3}, image.data(), chunks({chunk, 5, 7, 3})},
                    {"meta", meta_type, H5T_NATIVE_FLOAT, {rows, 4}, values.data()},
                    {"few", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {rows / 2, 4}, values.data()},
                    {"y", H5T_STD_I32LE, H5T_NATIVE_INT, {rows}, labels.data()}});
  return path;
}

ShardIndex index_of(const std::string& path, const std::vector<std::string>& names) {
  std::vector<ShardIndex> inputs;
  for (const std::string& name : names)
    inputs.push_back(index_shards(*solo_world(), {.paths = {path}, .x = name, .y = inputs.empty() ? "y" : ""}));
  return combine_inputs(std::move(inputs));
}

TEST(Inputs, EveryReaderPutsEachAtItsPlace) {
  for (const hsize_t chunk : {0, 8}) {
    const TemporaryFolder folder;
    const ShardIndex d = index_of(write_file(folder, chunk), {"image", "meta"});
    EXPECT_EQ(d.sample_bytes(), 112u + 16u);
    EXPECT_EQ(input_begin(d, 1), 112u);
    EXPECT_EQ(d.inputs[0].sample, (Shape{5, 7, 3}));
    EXPECT_EQ(d.classes.count, 6);
    const auto world = solo_world();
    for (const Reader reader : {Reader::automatic, Reader::direct, Reader::mmap, Reader::uring, Reader::mpio}) {
      const bool possible = reader == Reader::automatic || reader == Reader::mpio ||
                            unsupported_reason(reader, reader_facts(d.inputs[0]), d.inputs[0]).empty();
      if (!possible) continue;
      const auto source = make_source(*world, d, reader);
      EXPECT_NE(source->describe().find("2 inputs: "), std::string::npos) << source->describe();
      const std::vector<std::int64_t> ids{3, 4, 5, 39, 0, 17};
      std::vector<char> x(ids.size() * d.sample_bytes());
      std::vector<std::int32_t> y(ids.size());
      const auto queue = source->make_read_queue({});
      queue->begin(ids, x.data(), y.data());
      queue->finish();
      for (std::size_t r = 0; r < ids.size(); ++r) {
        const auto id = std::size_t(ids[r]);
        const char* const at = x.data() + r * d.sample_bytes();
        for (std::size_t i = 0; i < image_bytes; ++i)
          ASSERT_EQ(static_cast<unsigned char>(at[i]), pixel(id, i)) << source->describe() << ", sample " << id;
        float values[4];
        std::memcpy(values, at + 112, sizeof(values));
        for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(values[i], meta(id, i)) << source->describe();
        EXPECT_EQ(y[r], std::int32_t(id % 6));
      }
    }
  }
}

TEST(Inputs, WhatCannotBeOneOfThemIsRefused) {
  const TemporaryFolder folder;
  const std::string path = write_file(folder, 0);
  EXPECT_NE(message_of(
                [&] {
                  index_of(path, {"image", "few"});
                },
                Exit::data)
                .find("'few' has 20 rows"),
            std::string::npos);
  EXPECT_NE(message_of(
                [&] {
                  index_of(path, {"image", "none"});
                },
                Exit::data)
                .find("no data set 'none' (data.x)"),
            std::string::npos);
  EXPECT_EQ(input_names("image, meta"), (std::vector<std::string>{"image", "meta"}));
  const TemporaryFolder other;
  const std::string swapped = write_file(other, 0, H5T_IEEE_F32BE);
  EXPECT_NE(message_of(
                [&] {
                  index_of(swapped, {"image", "meta"});
                },
                Exit::data)
                .find("is big-endian"),
            std::string::npos);
}

}  // namespace inputs_test
}  // namespace millrace
