// How many rows each part of a split gets. Whole numbers only, so that every machine gives the same. Internal to
// data/scan.
#pragma once
#include <cstdint>
#include <vector>

namespace millrace {

// Part k has the share weights[k] / total. The last part is what is not used; its weight may be 0.
struct PartWeights {
  std::vector<std::int64_t> weights;
  std::int64_t total = 1;
  std::size_t used = 0;  // parts, without the last one

  // How many of n rows are the share of part k, rounded down; and the rest, in rows / total.
  std::int64_t whole(std::int64_t n, std::size_t k) const {
    return n / total * weights[k] + n % total * weights[k] / total;
  }
  std::int64_t rest(std::int64_t n, std::size_t k) const { return n % total * weights[k] % total; }
  std::int64_t wanted() const;  // parts of the used ones with a weight
};

// Rows of each part of n rows, nearest to the shares. owed: what earlier calls left to each part, in rows / total; the
// sums over several calls are then near the shares too. every_part: each used part with a weight gets a row; n is
// enough for that.
std::vector<std::int64_t> apportion(std::int64_t n, const PartWeights&, bool every_part,
                                    std::vector<std::int64_t>& owed);

// The part of each group. sizes: rows of the groups, in the order in which they are given away, each to the part that
// lacks most rows. There are enough groups for all parts.
std::vector<std::uint16_t> apportion_groups(const std::vector<std::int64_t>& sizes, const PartWeights&);

}  // namespace millrace
