// Buckets: the slices of the flat gradient and weight buffers that are communicated at once. With ZeRO stage 1
// (Rajbhandari et al. 2020) each bucket is sharded evenly: rank r updates shard r and is the only rank that stores the
// moments of that shard. In 16 bits it is also the only one that stores its float32 master weights; the ranks
// all-gather the 16-bit weights. Only the parameters that are read as float32 are whole, and all-gathered, in float32.
#pragma once
#include <cstdint>
#include <vector>

#include "millrace/ops/optimizer.hpp"

namespace millrace {

// Tags of the collective operations that are not for a bucket. The tag of a bucket is its number, from 0.
constexpr int stats_tag = -1, squares_tag = -2, exact_tag = -3, loss_weight_tag = -4;
// Of the exchange of norms: in a forward and in a backward pass, and while this rank has no rows.
constexpr int norm_forward_tag = -5, norm_backward_tag = -6, norm_without_rows_tag = -7;
constexpr bool is_norm_tag(int tag) { return tag <= norm_forward_tag && tag >= norm_without_rows_tag; }
// Of what muon gathers in its step: OptimizerArgs::updates.
constexpr int updates_tag = -8;
constexpr bool is_optimizer_tag(int tag) { return tag == squares_tag || tag == updates_tag; }

struct Bucket {
  std::int64_t begin = 0, end = 0;  // elements
};

// Elements [begin, end) of a flat buffer, which a rank stores at `offset`.
struct StoredRange {
  std::int64_t begin = 0, end = 0, offset = 0;
};

struct BucketSpec {
  std::int64_t elements = 1;   // approximate size of a bucket; it is rounded down to the alignment
  int ranks = 1, rank = 0;     // the ranks that share each bucket, and this one; ranks = 1: buckets are not sharded
  std::int64_t f32_count = 0;  // ParameterLayout::f32_count

  bool sharded() const { return ranks > 1; }
  std::int64_t alignment() const;  // bucket sizes are multiples of it, in elements
  // Size of a flat buffer for `count` elements. With sharding it is padded so that the last bucket divides evenly too.
  std::int64_t padded(std::int64_t count) const;
  // Elements whose float32 values all ranks store: all, or with sharding, f32_count rounded up to the alignment.
  std::int64_t whole(std::int64_t count) const;
  // The buckets of padded(count) elements, from the end of the buffer to its start. None crosses whole(count).
  std::vector<Bucket> split(std::int64_t count) const;
  // Those of them that have elements of a matrix of muon.
  std::vector<Bucket> with_matrices(std::int64_t count, const OptimizerSpec&) const;
  Bucket own_shard(const Bucket&) const;
  // This rank's shards of all buckets, in ascending order; empty if buckets are not sharded.
  std::vector<OptimizerShard> shards(std::int64_t count) const;
  // What this rank stores of a buffer that has the first `whole` elements, then only this rank's shards behind them.
  std::vector<StoredRange> stored(std::int64_t count, std::int64_t whole) const;
};

}  // namespace millrace
