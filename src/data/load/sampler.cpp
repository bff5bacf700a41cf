#include "millrace/data/load/sampler.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/permutation.hpp"
#include "millrace/data/load/block_order.hpp"

namespace millrace {
Sampler::Sampler(std::int64_t rows, std::int64_t global_batch, std::int64_t micro_batch, std::uint64_t seed,
                 bool shuffle)
    : rows_(rows), global_batch_(global_batch), micro_batch_(micro_batch), seed_(seed), shuffle_(shuffle) {
  MR_CHECK(rows >= 1 && global_batch >= 1 && micro_batch >= 1);
}

Sampler::Sampler(std::int64_t global_batch, std::int64_t micro_batch, std::shared_ptr<const BlockOrder> blocks)
    : Sampler(blocks->rows(), global_batch, micro_batch, 0, true) {
  blocks_ = std::move(blocks);
}

void Sampler::select(std::shared_ptr<const RowSelection> selection) {
  MR_CHECK(!selection || selection->count() == rows_);
  selection_ = std::move(selection);
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
  share(epoch, step, MicrobatchRange::even(rank, size), out);
  return out;
}

void Sampler::share(std::int64_t epoch, std::int64_t step, const MicrobatchRange& part,
                    std::vector<MicroBatch>& out) const {
  out.clear();
  const std::int64_t rows = rows_of_step(step), all = micro_batches(step), first = part.first(all);
  for (std::int64_t m = first; m < first + part.count(all); ++m)
    out.push_back(
        {epoch, step, step * global_batch_ + m * micro_batch_, std::min(micro_batch_, rows - m * micro_batch_)});
}

void Sampler::ids(const MicroBatch& item, std::int64_t* out) const {
  if (blocks_) {
    blocks_->ids(item.epoch, item.first, item.rows, out);
  } else {
    const Permutation order(seed_, std::uint64_t(item.epoch), std::uint64_t(rows_));
    for (std::int64_t i = 0; i < item.rows; ++i)
      out[i] = shuffle_ ? std::int64_t(order(std::uint64_t(item.first + i))) : item.first + i;
  }
  for (std::int64_t i = 0; selection_ && i < item.rows; ++i) out[i] = selection_->id(out[i]);
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
