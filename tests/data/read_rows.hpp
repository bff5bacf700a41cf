// Rows that a source reads, and orders in which tests ask for them.
#pragma once
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/data/read/source.hpp"

namespace millrace::test {

struct ReadRows {
  std::string x, y;
  bool operator==(const ReadRows&) const = default;
};

inline ReadRows read_rows(Source& source, const ShardIndex& d, const std::vector<std::int64_t>& ids) {
  ReadRows out{std::string(ids.size() * d.sample_bytes(), '?'),
               std::string(ids.size() * 4 * std::size_t(d.y.target.count()), '?')};
  source.read(ids, out.x.data(), out.y.data());
  return out;
}

inline std::vector<std::int64_t> in_order(std::int64_t rows) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

inline std::vector<std::int64_t> shuffled(std::int64_t rows) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
  Sampler(rows, rows, rows, 3, true).ids({0, 0, 0, rows}, ids.data());
  return ids;
}

}  // namespace millrace::test
