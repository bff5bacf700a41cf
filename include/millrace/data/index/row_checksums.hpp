// Checksums of the rows of a shard. `pack` stores them in the data set row_crc32c: one int32 for each row, the bits of
// the CRC-32C of the bytes of its sample and then of its label or target, as stored. `inspect --verify` compares them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

inline constexpr const char* row_checksums_name = "/row_crc32c";

std::int32_t row_checksum(const void* x, std::size_t x_bytes, const void* y, std::size_t y_bytes);
// Of `count` rows of equal size.
std::vector<std::int32_t> row_checksums(const char* x, std::size_t x_bytes, const char* y, std::size_t y_bytes,
                                        std::int64_t count);

struct VerifiedRows {
  std::int64_t rows = 0;     // that were compared; 0: the file holds no checksums
  std::int64_t damaged = 0;  // rows with another checksum
  std::int64_t first = -1;   // the first of them
};
// Reads all rows of a shard that `pack` wrote. Error(data): it cannot be read.
VerifiedRows verify_rows(const std::string& path);

}  // namespace millrace
