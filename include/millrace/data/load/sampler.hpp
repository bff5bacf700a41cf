// Sampler: which sample is at which position of an epoch, and which rank trains on it. A pure function of the seed: it
// needs O(1) memory at any size, and does not depend on the number of ranks and workers.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/base/permutation.hpp"
#include "millrace/data/index/row_selection.hpp"

namespace millrace {

class BlockOrder;  // block_order.hpp

// Rows of one micro-batch: positions [first, first + rows) of an epoch's order.
struct MicroBatch {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // within the epoch
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

// The micro-batches that one rank takes of a step with M micro-batches: numbers [begin M / of, end M / of).
struct MicrobatchRange {
  std::int64_t begin = 0, end = 1, of = 1;

  static MicrobatchRange even(int rank, int size) { return {rank, rank + 1, size}; }
  std::int64_t first(std::int64_t micro_batches) const { return begin * micro_batches / of; }
  std::int64_t count(std::int64_t micro_batches) const { return end * micro_batches / of - first(micro_batches); }
};

// With N rows, a global batch of G and micro-batches of m rows, step t of an epoch takes positions
// [t G, min((t + 1) G, N)). It splits them into micro-batches of m rows; the last may be shorter. Each rank takes the
// consecutive micro-batches of its MicrobatchRange. No sample is dropped, repeated or padded; a rank may get none in
// the last step of an epoch.
class Sampler {
 public:
  // shuffle: a random order over all samples, a different one in each epoch; else the order of the files.
  Sampler(std::int64_t rows, std::int64_t global_batch, std::int64_t micro_batch, std::uint64_t seed, bool shuffle);
  // Samples in the order of `blocks` (block-wise shuffling).
  Sampler(std::int64_t global_batch, std::int64_t micro_batch, std::shared_ptr<const BlockOrder> blocks);
  // The samples are those of a selection: a position stands for one of them. It has rows() of them.
  void select(std::shared_ptr<const RowSelection>);
  std::int64_t rows() const { return rows_; }
  std::int64_t steps_per_epoch() const;
  std::int64_t rows_of_step(std::int64_t step) const;
  std::int64_t micro_batches(std::int64_t step) const;  // of all ranks together
  // This rank's micro-batches of a step, split evenly among the ranks.
  std::vector<MicroBatch> share(std::int64_t epoch, std::int64_t step, int rank, int size) const;
  // The same for any split. Replaces the content of `out`, and allocates nothing once its capacity suffices.
  void share(std::int64_t epoch, std::int64_t step, const MicrobatchRange&, std::vector<MicroBatch>& out) const;
  // Writes the item.rows sample ids of a micro-batch to `out`.
  void ids(const MicroBatch& item, std::int64_t* out) const;
  // All row counts that micro-batches can have (full and shorter last ones), largest first. The network prepares a
  // Program for each.
  std::vector<std::int64_t> row_counts() const;

 private:
  std::shared_ptr<const RowSelection> selection_;  // null: all samples
  std::shared_ptr<const BlockOrder> blocks_;       // null: single samples are shuffled, or none
  std::int64_t rows_, global_batch_, micro_batch_;
  std::uint64_t seed_;
  bool shuffle_;
};

}  // namespace millrace
