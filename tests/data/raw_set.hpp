// A data set of raw files without HDF5 structures: labels first, then samples at a chosen offset up to the end of the
// file. Readers need nothing else.
#pragma once
#include <fmt/core.h>

#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "data/files.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace::test {

struct RawSet {
  TemporaryFolder folder;
  ShardIndex index;
  std::vector<std::string> samples;

  RawSet(std::int64_t sample_bytes, const std::vector<std::int64_t>& rows_of_shards, std::uint64_t x_offset) {
    index.sample = {sample_bytes};
    index.y.dtype = DType::i32;
    for (const std::int64_t rows : rows_of_shards) {
      Shard shard;
      shard.path = folder / fmt::format("raw{}", index.shards.size());
      shard.first = index.rows;
      shard.rows = rows;
      shard.x_offset = x_offset + 4 * std::uint64_t(rows);
      std::ofstream out(shard.path, std::ios::binary);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto y = std::int32_t(label(shard.first + r));
        out.write(reinterpret_cast<const char*>(&y), 4);
      }
      out << std::string(x_offset, '-');
      for (std::int64_t r = 0; r < rows; ++r) out << samples.emplace_back(sample(shard.first + r));
      shard.file_bytes = std::uint64_t(out.tellp());
      index.shards.push_back(shard);
      index.rows += rows;
    }
  }

  static std::int64_t label(std::int64_t id) { return 3 * id + 1; }
  std::string sample(std::int64_t id) const {
    std::string out(index.sample_bytes(), 0);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = char((std::size_t(id) * 131 + i * 7 + i / 251) % 251);
    return out;
  }
  // Fails the test if row r is not sample ids[r].
  void expect(std::span<const std::int64_t> ids, const char* x, const std::int32_t* y, const std::string& who) const {
    for (std::size_t r = 0; r < ids.size(); ++r) {
      ASSERT_EQ(y[r], label(ids[r])) << who;
      ASSERT_EQ(std::memcmp(samples[std::size_t(ids[r])].data(), x + r * index.sample_bytes(), index.sample_bytes()), 0)
          << who << ", sample " << ids[r];
    }
  }
};

}  // namespace millrace::test
