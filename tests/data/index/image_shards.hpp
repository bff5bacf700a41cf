// Files of small images with labels, for tests of the shard index.
#pragma once
#include <string>
#include <vector>

#include "data/files.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/scan/index_shards.hpp"

namespace millrace::test {

struct Images {
  std::vector<std::uint8_t> x;
  std::vector<std::int64_t> y;
  explicit Images(std::size_t rows, std::size_t bytes = 48) : x(rows * bytes), y(rows) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::uint8_t(i * 37 + i / 48);
    for (std::size_t i = 0; i < rows; ++i) y[i] = std::int64_t(i % 6);
  }
};

inline void write_images(const std::string& path, const std::vector<hsize_t>& shape,
                         const std::vector<hsize_t>& y_shape, const char* x_name = "x", const char* y_name = "y") {
  const Images i(shape[0]);
  write_file(path, {{x_name, H5T_STD_U8LE, H5T_NATIVE_UINT8, shape, i.x.data()},
                    {y_name, H5T_STD_I64LE, H5T_NATIVE_INT64, y_shape, i.y.data()}});
}

inline ShardIndex index_of(const DataOptions& options) { return index_shards(*solo_world(), options); }

}  // namespace millrace::test
