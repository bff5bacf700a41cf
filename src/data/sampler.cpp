#include "millrace/data/sampler.hpp"

#include <algorithm>
#include <bit>

#include "millrace/base/error.hpp"
#include "millrace/data/block_order.hpp"

namespace millrace {
namespace {

// A round's function: the upper half of a 64-bit multiplication folded back.
std::uint64_t mix(std::uint64_t z) {
  z *= 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 32)) * 0x94D049BB133111EBull;
  return z >> 32;
}

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t n, Purpose purpose, std::uint64_t part)
    : n_(n) {
  MR_CHECK(n >= 1 && n <= (std::uint64_t(1) << 40));
  for (std::size_t i = 0; i < keys_.size(); i += 2) {
    const Random4 r = philox(rng_key(seed, purpose), epoch, part << 3 | i);
    keys_[i] = std::uint64_t(r.v[0]) << 32 | r.v[1], keys_[i + 1] = std::uint64_t(r.v[2]) << 32 | r.v[3];
  }
  low_bits_ = std::max(2, int(std::bit_width(n - 1))) / 2;
  high_count_ = (n + (std::uint64_t(1) << low_bits_) - 1) >> low_bits_;
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  const std::uint64_t low_mask = (std::uint64_t(1) << low_bits_) - 1;
  std::uint64_t x = position;
  do {  // a walk along the cycle of a bijection of the rectangle, until it is inside again
    std::uint64_t high = x >> low_bits_, low = x & low_mask;
    for (std::size_t round = 0; round < rounds; round += 2) {
      high += (mix(low ^ keys_[round]) * high_count_) >> 32;
      high -= high >= high_count_ ? high_count_ : 0;
      low ^= mix(high ^ keys_[round + 1]) & low_mask;
    }
    x = high << low_bits_ | low;
  } while (x >= n_);
  return x;
}

std::uint64_t Permutation::position_of(std::uint64_t value) const {
  const std::uint64_t low_mask = (std::uint64_t(1) << low_bits_) - 1;
  std::uint64_t x = value;
  do {  // the same walk, backwards
    std::uint64_t high = x >> low_bits_, low = x & low_mask;
    for (std::size_t round = rounds; round > 0; round -= 2) {
      low ^= mix(high ^ keys_[round - 1]) & low_mask;
      const std::uint64_t added = (mix(low ^ keys_[round - 2]) * high_count_) >> 32;
      high = high >= added ? high - added : high + high_count_ - added;
    }
    x = high << low_bits_ | low;
  } while (x >= n_);
  return x;
}

Sampler::Sampler(std::int64_t rows, std::int64_t global_batch, std::int64_t micro_batch, std::uint64_t seed,
                 bool shuffle)
    : rows_(rows), global_batch_(global_batch), micro_batch_(micro_batch), seed_(seed), shuffle_(shuffle) {
  MR_CHECK(rows >= 1 && global_batch >= 1 && micro_batch >= 1);
}

Sampler::Sampler(std::int64_t global_batch, std::int64_t micro_batch, std::shared_ptr<const BlockOrder> blocks)
    : Sampler(blocks->rows(), global_batch, micro_batch, 0, true) {
  blocks_ = std::move(blocks);
}

std::int64_t Sampler::steps_per_epoch() const { return (rows_ + global_batch_ - 1) / global_batch_; }

std::int64_t Sampler::rows_of_step(std::int64_t step) const {
  return std::min(global_batch_, rows_ - step * global_batch_);
}

std::int64_t Sampler::micro_batches(std::int64_t step) const {
  return (rows_of_step(step) + micro_batch_ - 1) / micro_batch_;
}

std::vector<MicroBatch> Sampler::share(std::int64_t epoch, std::int64_t step, int rank, int size) const {
  std::vector<MicroBatch> out;
  share(epoch, step, StepPart::even(rank, size), out);
  return out;
}

void Sampler::share(std::int64_t epoch, std::int64_t step, const StepPart& part, std::vector<MicroBatch>& out) const {
  out.clear();
  const std::int64_t rows = rows_of_step(step), all = micro_batches(step), first = part.first(all);
  for (std::int64_t m = first; m < first + part.count(all); ++m)
    out.push_back(
        {epoch, step, step * global_batch_ + m * micro_batch_, std::min(micro_batch_, rows - m * micro_batch_)});
}

void Sampler::ids(const MicroBatch& item, std::int64_t* out) const {
  if (blocks_) return blocks_->ids(item.epoch, item.first, item.rows, out);
  const Permutation order(seed_, std::uint64_t(item.epoch), std::uint64_t(rows_));
  for (std::int64_t i = 0; i < item.rows; ++i)
    out[i] = shuffle_ ? std::int64_t(order(std::uint64_t(item.first + i))) : item.first + i;
}

std::vector<std::int64_t> Sampler::row_counts() const {
  std::vector<std::int64_t> counts;
  for (const std::int64_t step : {std::int64_t(0), steps_per_epoch() - 1}) {
    const std::int64_t rows = rows_of_step(step);
    if (rows >= micro_batch_) counts.push_back(micro_batch_);
    if (rows % micro_batch_ != 0) counts.push_back(rows % micro_batch_);
  }
  std::sort(counts.rbegin(), counts.rend());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

}  // namespace millrace
