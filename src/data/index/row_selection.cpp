#include "millrace/data/index/row_selection.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "millrace/base/error.hpp"

namespace millrace {

RowSelection::RowSelection(std::span<const std::uint16_t> parts, const std::vector<bool>& wanted)
    : bits_((parts.size() + 63) / 64), rows_(std::int64_t(parts.size())) {
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (wanted[parts[i]]) bits_[i / 64] |= std::uint64_t(1) << (i % 64);
  count_blocks();
}

RowSelection::RowSelection(std::vector<std::uint64_t> bits, std::int64_t rows) : bits_(std::move(bits)), rows_(rows) {
  MR_CHECK(std::int64_t(bits_.size()) == (rows + 63) / 64);
  count_blocks();
}

void RowSelection::count_blocks() {
  for (std::size_t word = 0; word < bits_.size(); ++word) {
    if (word % block_words == 0) before_.push_back(count_);
    count_ += std::popcount(bits_[word]);
  }
  before_.push_back(count_);
}

std::int64_t RowSelection::id(std::int64_t position) const {
  MR_CHECK(position >= 0 && position < count_, "position {} of {}", position, count_);
  const auto after = std::upper_bound(before_.begin(), before_.end(), position);
  const auto block = std::size_t(after - before_.begin()) - 1;
  std::int64_t left = position - before_[block];
  std::size_t word = block * block_words;
  for (std::int64_t here; left >= (here = std::popcount(bits_[word])); ++word) left -= here;
  std::uint64_t bits = bits_[word];
  for (; left > 0; --left) bits &= bits - 1;
  return std::int64_t(word) * 64 + std::countr_zero(bits);
}

std::int64_t RowSelection::count_below(std::int64_t id) const {
  MR_CHECK(id >= 0 && id <= rows_, "sample {} of {}", id, rows_);
  const std::size_t word = std::size_t(id / 64), block = word / block_words;
  if (id == rows_) return count_;
  std::int64_t out = before_[block];
  for (std::size_t w = block * block_words; w < word; ++w) out += std::popcount(bits_[w]);
  return out + std::popcount(bits_[word] & ((std::uint64_t(1) << (id % 64)) - 1));
}

}  // namespace millrace
