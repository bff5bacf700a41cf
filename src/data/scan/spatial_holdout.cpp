#include "data/scan/spatial_holdout.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "millrace/base/permutation.hpp"

namespace millrace {
namespace {

using Block = std::pair<std::int64_t, std::int64_t>;  // row and column in the grid of blocks

}  // namespace

std::vector<Pixel> spatial_holdout(std::vector<Pixel> labelled, const SampleView& view, bool validation_part) {
  const std::int64_t side = 4 * view.patch, margin = view.patch - 1;
  const auto block_of = [side](std::int64_t row, std::int64_t column) {
    const auto index = [side](std::int64_t at) { return at >= 0 ? at / side : -1; };
    return Block{index(row), index(column)};
  };
  std::map<Block, std::int64_t> counts;
  for (const Pixel& p : labelled) ++counts[block_of(p.row, p.column)];
  std::vector<std::pair<Block, std::int64_t>> blocks(counts.begin(), counts.end());
  const Permutation order(0, 0, blocks.size(), RngPurpose::shuffle);
  std::set<Block> held_blocks;
  const double target = view.holdout * double(labelled.size());
  std::int64_t held = 0;
  for (std::size_t i = 0; i < blocks.size() && double(held) < target; ++i) {
    const auto& [block, count] = blocks[order(i)];
    held_blocks.insert(block);
    held += count;
  }
  // A block is wider than the margin. So a block within the margin of p contains a corner or an edge's centre of the
  // square of that size around p.
  const auto near_block = [&](const Pixel& p) {
    for (const std::int64_t r : {-margin, std::int64_t(0), margin})
      for (const std::int64_t c : {-margin, std::int64_t(0), margin})
        if (held_blocks.contains(block_of(std::int64_t(p.row) + r, std::int64_t(p.column) + c))) return true;
    return false;
  };
  std::erase_if(labelled, [&](const Pixel& p) {
    return validation_part ? !held_blocks.contains(block_of(p.row, p.column)) : near_block(p);
  });
  return labelled;
}

}  // namespace millrace
