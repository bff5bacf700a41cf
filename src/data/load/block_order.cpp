// A slot is a place in the order in which an epoch visits the blocks. All blocks have the same length except the last
// one of each file. So the slot of a position follows by division, once the rows that earlier short blocks lack have
// been added. The slots of the short blocks are computed once an epoch, by the inverse of the permutation of blocks.
#include "millrace/data/load/block_order.hpp"

#include <algorithm>
#include <optional>

#include "millrace/base/error.hpp"
#include "millrace/base/permutation.hpp"
#include "millrace/data/load/sampler.hpp"

namespace millrace {

struct BlockOrder::Epoch {
  struct ShortBlock {
    std::int64_t slot;
    std::int64_t end;      // position after its last row
    std::int64_t lacking;  // rows that it and all short blocks before it lack
  };
  struct Place {
    std::int64_t slot, row;
  };

  std::int64_t number, block;
  Permutation blocks;
  std::vector<ShortBlock> shorts;  // by slot

  std::int64_t begin(std::int64_t slot) const {
    const auto next =
        std::partition_point(shorts.begin(), shorts.end(), [&](const ShortBlock& s) { return s.slot < slot; });
    return slot * block - (next == shorts.begin() ? 0 : std::prev(next)->lacking);
  }
  Place place(std::int64_t position) const {
    const auto next =
        std::partition_point(shorts.begin(), shorts.end(), [&](const ShortBlock& s) { return s.end <= position; });
    const std::int64_t even = position + (next == shorts.begin() ? 0 : std::prev(next)->lacking);
    return {even / block, even % block};
  }
};

BlockOrder::BlockOrder(const BlockLayout& layout, std::uint64_t seed)
    : block_(layout.block), window_(layout.window), seed_(seed) {
  MR_CHECK(block_ >= 1 && window_ >= 1);
  for (const std::int64_t rows : layout.file_rows) {
    MR_CHECK(rows >= 1);
    first_row_.push_back(rows_);
    first_block_.push_back(blocks_);
    rows_ += rows;
    blocks_ += (rows - 1) / block_ + 1;
  }
  MR_CHECK(rows_ >= 1 && rows_ <= std::int64_t(1) << 40);
  first_row_.push_back(rows_);
  first_block_.push_back(blocks_);
}

std::shared_ptr<const BlockOrder::Epoch> BlockOrder::epoch(std::int64_t number) const {
  const std::lock_guard lock(mutex_);
  for (const auto& known : {last_, previous_})
    if (known && known->number == number) return known;
  auto made = std::make_shared<Epoch>(
      Epoch{number, block_, {seed_, std::uint64_t(number), std::uint64_t(blocks_), RngPurpose::blocks}, {}});
  for (std::size_t f = 0; f + 1 < first_row_.size(); ++f)
    if (const std::int64_t rest = (first_row_[f + 1] - first_row_[f]) % block_; rest > 0)
      made->shorts.push_back(
          {std::int64_t(made->blocks.position_of(std::uint64_t(first_block_[f + 1] - 1))), 0, block_ - rest});
  std::sort(made->shorts.begin(), made->shorts.end(), [](const auto& a, const auto& b) { return a.slot < b.slot; });
  std::int64_t lacking = 0;
  for (auto& s : made->shorts) {
    lacking += s.lacking;
    s.lacking = lacking;
    s.end = (s.slot + 1) * block_ - lacking;
  }
  previous_ = std::exchange(last_, made);
  return made;
}

void BlockOrder::ids(std::int64_t number, std::int64_t first, std::int64_t count, std::int64_t* out) const {
  MR_CHECK(first >= 0 && count >= 0 && first + count <= rows_);
  const auto order = epoch(number);
  std::int64_t begin = 0, end = 0;  // of the window that contains the position
  std::optional<Permutation> within;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t position = first + i;
    if (!within || position >= end) {
      const std::int64_t window = order->place(position).slot / window_;
      begin = order->begin(window * window_);
      end = order->begin(std::min(blocks_, (window + 1) * window_));
      within.emplace(seed_, std::uint64_t(number), std::uint64_t(end - begin), RngPurpose::windows,
                     std::uint64_t(window));
    }
    const auto [slot, row] = order->place(begin + std::int64_t((*within)(std::uint64_t(position - begin))));
    const auto block = std::int64_t(order->blocks(std::uint64_t(slot)));
    const auto after = std::upper_bound(first_block_.begin(), first_block_.end(), block);
    const auto file = std::size_t(after - first_block_.begin()) - 1;
    out[i] = first_row_[file] + (block - first_block_[file]) * block_ + row;
  }
}

}  // namespace millrace
