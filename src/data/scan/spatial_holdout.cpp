#include "data/scan/spatial_holdout.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "millrace/base/permutation.hpp"

namespace millrace {
namespace {

using Block = std::pair<std::int64_t, std::int64_t>;  // its row and column among the blocks

}  // namespace

std::vector<Pixel> spatial_holdout(std::vector<Pixel> labelled, const SampleView& view, bool validation_part) {
  const std::int64_t side = 4 * view.patch, margin = view.patch - 1;
  const auto block_of = [side](std::int64_t row, std::int64_t column) {
    const auto down = [side](std::int64_t at) { return at >= 0 ? at / side : -1; };
    return Block{down(row), down(column)};
  };
  std::map<Block, std::int64_t> counts;
  for (const Pixel& p : labelled) ++counts[block_of(p.row, p.column)];
  std::vector<std::pair<Block, std::int64_t>> blocks(counts.begin(), counts.end());
  const Permutation order(0, 0, blocks.size(), RngPurpose::shuffle);
  std::set<Block> out;
  const double wanted = view.holdout * double(labelled.size());
  std::int64_t held = 0;
  for (std::size_t i = 0; i < blocks.size() && double(held) < wanted; ++i) {
    const auto& [block, count] = blocks[order(i)];
    out.insert(block), held += count;
  }
  // A block is wider than the margin: one in reach holds a corner, or the middle of an edge, of the square of reach.
  const auto near = [&](const Pixel& p) {
    for (const std::int64_t r : {-margin, std::int64_t(0), margin})
      for (const std::int64_t c : {-margin, std::int64_t(0), margin})
        if (out.contains(block_of(std::int64_t(p.row) + r, std::int64_t(p.column) + c))) return true;
    return false;
  };
  std::erase_if(labelled,
                [&](const Pixel& p) { return validation_part ? !out.contains(block_of(p.row, p.column)) : near(p); });
  return labelled;
}

}  // namespace millrace
