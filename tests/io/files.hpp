// Writes files directly with the HDF5 library, as other programs would.
#pragma once
#include <hdf5.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "millrace/io/chunks.hpp"
#include "support/temporary_folder.hpp"

namespace millrace::io::test {

using millrace::test::TemporaryFolder;

struct Recipe {
  hid_t type = H5T_NATIVE_INT32;
  std::vector<hsize_t> shape{7, 5, 3};
  std::vector<hsize_t> chunk;  // empty: contiguous
  bool gzip = false, early = true;
  hsize_t user_block = 0;
  std::vector<H5Z_filter_t> filters;
};

// Writes one data set "x" with `values` of the given native type to a file of the library's default format.
inline void write_foreign(const std::string& path, const Recipe& r, hid_t native, const void* values) {
  const hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), dcpl = H5Pcreate(H5P_DATASET_CREATE);
  if (r.user_block) H5Pset_userblock(fcpl, r.user_block);
  if (!r.chunk.empty()) H5Pset_chunk(dcpl, int(r.chunk.size()), r.chunk.data());
  if (r.gzip) {
    H5Pset_shuffle(dcpl);
    H5Pset_deflate(dcpl, 1);
  }
  for (const auto filter : r.filters) H5Pset_filter(dcpl, filter, H5Z_FLAG_OPTIONAL, 0, nullptr);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, fcpl, H5P_DEFAULT);
  const hid_t space =
      r.shape.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(int(r.shape.size()), r.shape.data(), nullptr);
  const hid_t dataset = H5Dcreate2(file, "x", r.type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
  if (values) H5Dwrite(dataset, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Fclose(file);
  H5Pclose(dcpl);
  H5Pclose(fcpl);
}

inline std::vector<char> bytes_at(const std::string& path, std::uint64_t offset, std::size_t count) {
  std::vector<char> bytes(count);
  std::ifstream in(path, std::ios::binary);
  in.seekg(std::streamoff(offset));
  in.read(bytes.data(), std::streamsize(count));
  bytes.resize(std::size_t(in.gcount()));
  return bytes;
}

// Reads all elements of a data set from its chunks.
inline std::string decoded(const std::string& path, const ChunkedLayout& layout) {
  std::size_t count = 1;
  for (const auto extent : layout.shape) count *= std::size_t(extent);
  std::string out(count * layout.element_bytes, '?');
  ByteBuffer raw, chunk;
  for (std::size_t c = 0; c < layout.chunks.size(); ++c) {
    if (layout.chunks[c].bytes == 0) {
      fill_chunk(layout, chunk);
    } else {
      const auto stored = bytes_at(path, layout.chunks[c].offset, layout.chunks[c].bytes);
      raw.resize_uninitialized(stored.size());
      std::memcpy(raw.data(), stored.data(), stored.size());
      decode_chunk(layout, c, raw, chunk);
    }
    for (std::size_t i = 0; i * layout.element_bytes < chunk.size(); ++i) {
      std::size_t inside = i, number = c, place = 0, stride = 1;
      bool there = true;
      for (std::size_t d = layout.shape.size(); d-- > 0;) {
        const auto extent = std::size_t(layout.chunk[d]), along = std::size_t(layout.chunks_along(d));
        const std::size_t at = number % along * extent + inside % extent;
        there = there && at < std::size_t(layout.shape[d]);
        place += at * stride;
        stride *= std::size_t(layout.shape[d]);
        inside /= extent;
        number /= along;
      }
      if (there)
        std::memcpy(&out[place * layout.element_bytes], chunk.data() + i * layout.element_bytes, layout.element_bytes);
    }
  }
  return out;
}

}  // namespace millrace::io::test
