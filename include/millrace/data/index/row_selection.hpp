// RowSelection: a part of the samples of a data set, with one bit for each sample of the whole.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

class RowSelection {
 public:
  // The samples whose part is marked in `wanted`. parts: the part of each sample.
  RowSelection(std::span<const std::uint16_t> parts, const std::vector<bool>& wanted);
  // From bits() of another selection.
  RowSelection(std::vector<std::uint64_t> bits, std::int64_t rows);

  std::int64_t count() const { return count_; }  // of selected samples
  std::int64_t rows() const { return rows_; }    // of the data set
  bool contains(std::int64_t id) const { return bits_[std::size_t(id / 64)] >> (id % 64) & 1; }
  // The sample at a position in [0, count), in ascending order.
  std::int64_t id(std::int64_t position) const;
  std::int64_t count_below(std::int64_t id) const;  // of selected samples before `id`, which may be rows()
  const std::vector<std::uint64_t>& bits() const { return bits_; }

 private:
  void count_blocks();
  static constexpr std::size_t block_words = 8;
  std::vector<std::uint64_t> bits_;
  std::vector<std::int64_t> before_;  // by block of 8 words: how many are selected in the blocks before; then the total
  std::int64_t rows_ = 0, count_ = 0;
};

}  // namespace millrace
