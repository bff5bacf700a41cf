// Sampler: which sample stands where. A pure function, O(1) memory at any size, the same for every number of ranks and
// workers.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/base/permutation.hpp"

namespace millrace {

class BlockOrder;  // block_order.hpp

// Rows of one micro-batch: positions [first, first + rows) of an epoch's order.
struct MicroBatch {
  std::int64_t epoch = 0, step = 0;  // step within the epoch
  std::int64_t first = 0, rows = 0;
};

// What one rank takes of a step's M micro-batches: those in [begin M / of, end M / of).
struct MicrobatchRange {
  std::int64_t begin = 0, end = 1, of = 1;

  static MicrobatchRange even(int rank, int size) { return {rank, rank + 1, size}; }
  std::int64_t first(std::int64_t micro_batches) const { return begin * micro_batches / of; }
  std::int64_t count(std::int64_t micro_batches) const { return end * micro_batches / of - first(micro_batches); }
};

// Step t of an epoch is positions [tG, min((t+1)G, N)), cut into micro-batches of m rows (the last may be shorter);
// each rank takes consecutive ones, its StepPart of them. No sample is dropped, repeated or padded; a rank may have
// none in a tail.
class Sampler {
 public:
  Sampler(std::int64_t rows, std::int64_t global_batch, std::int64_t micro_batch, std::uint64_t seed, bool shuffle);
  // The order of `blocks`, which is of as many rows.
  Sampler(std::int64_t global_batch, std::int64_t micro_batch, std::shared_ptr<const BlockOrder> blocks);
  std::int64_t rows() const { return rows_; }
  std::int64_t steps_per_epoch() const;
  std::int64_t rows_of_step(std::int64_t step) const;
  std::int64_t micro_batches(std::int64_t step) const;                                             // of all ranks
  std::vector<MicroBatch> share(std::int64_t epoch, std::int64_t step, int rank, int size) const;  // even
  void share(std::int64_t epoch, std::int64_t step, const MicrobatchRange&,
             std::vector<MicroBatch>& out) const;  // no allocation once grown
  // Sample ids of a micro-batch.
  void ids(const MicroBatch&, std::int64_t* out) const;
  // All row counts that micro-batches can have (full and tails), largest first: a Program is prepared for each.
  std::vector<std::int64_t> row_counts() const;

 private:
  std::shared_ptr<const BlockOrder> blocks_;  // null: of single samples
  std::int64_t rows_, global_batch_, micro_batch_;
  std::uint64_t seed_;
  bool shuffle_;
};

}  // namespace millrace
