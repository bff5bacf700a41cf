// Data sets for the tests of data/: files as other programs write them, and an importer that generates its rows.
#pragma once
#include <hdf5.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/data/pack/importer.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace millrace::test {

struct Column {
  std::string name;
  hid_t stored, native;
  std::vector<hsize_t> shape;
  const void* values;
  std::vector<hsize_t> chunk = {};  // not empty: chunked, shuffled, gzip
};

inline void write_file(const std::string& path, const std::vector<Column>& columns, hsize_t user_block = 0) {
  const hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);
  if (user_block) H5Pset_userblock(fcpl, user_block);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, fcpl, H5P_DEFAULT);
  for (const Column& c : columns) {
    const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (!c.chunk.empty()) {
      H5Pset_chunk(dcpl, int(c.chunk.size()), c.chunk.data());
      H5Pset_shuffle(dcpl);
      H5Pset_deflate(dcpl, 4);
    }
    const hid_t space = H5Screate_simple(int(c.shape.size()), c.shape.data(), nullptr);
    const hid_t dataset = H5Dcreate2(file, c.name.c_str(), c.stored, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    H5Dwrite(dataset, c.native, H5S_ALL, H5S_ALL, H5P_DEFAULT, c.values);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(dcpl);
  }
  H5Fclose(file);
  H5Pclose(fcpl);
}

inline std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Samples whose values are a function of the row, as uint8 or float.
class Rows : public Importer {
 public:
  std::int64_t count = 100;
  Shape one{4, 3, 2};
  bool first = false, floats = false, targets = false;
  std::int64_t fail_at = -1;

  static std::uint8_t value(std::int64_t row, std::int64_t i) {
    return std::uint8_t(philox(1, std::uint64_t(row), std::uint64_t(i)).v[0]);
  }
  std::int64_t rows() const override { return count; }
  Shape sample() const override { return one; }
  bool channels_first() const override { return first; }
  DType x_dtype() const override { return floats ? DType::f32 : DType::u8; }
  DType y_dtype() const override { return targets ? DType::f32 : DType::i64; }
  Shape target() const override { return targets ? Shape{2} : Shape{}; }
  void read(std::int64_t begin, std::int64_t n, void* x, void* y) const override {
    for (std::int64_t r = 0; r < n; ++r) {
      const std::int64_t row = begin + r;
      if (row == fail_at) fail(Exit::data, "row {} is broken", row);
      for (std::int64_t i = 0; i < one.count(); ++i)
        if (floats)
          static_cast<float*>(x)[r * one.count() + i] = float(value(row, i)) / 7;
        else
          static_cast<std::uint8_t*>(x)[r * one.count() + i] = value(row, i);
      if (targets) {
        static_cast<float*>(y)[2 * r] = float(row);
        static_cast<float*>(y)[2 * r + 1] = -float(row);
      } else {
        static_cast<std::int64_t*>(y)[r] = row % 7;
      }
    }
  }
  std::string describe() const override { return "rows of a test"; }
};

}  // namespace millrace::test
