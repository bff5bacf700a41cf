// Values and labels of chunked data sets.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/files.hpp"
#include "millrace/base/rng.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::test {

// Initializes HDF5 under its lock before a test calls it.
inline const std::string hdf5_version = io::library_version();

inline std::string numbers(std::size_t bytes, std::uint64_t seed) {
  std::string out(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) out[i] = char(philox(seed, i / 3, 0).v[0] % 50);
  return out;
}

inline std::vector<std::int64_t> labels(std::int64_t rows) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r) out[std::size_t(r)] = r * r % 13;
  return out;
}

}  // namespace millrace::test
