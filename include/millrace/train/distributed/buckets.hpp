// Buckets: the slices of the flat gradient and weight buffers that are communicated at once. With ZeRO stage 1
// (Rajbhandari et al. 2020) each bucket is sharded evenly: rank r updates shard r and is the only rank that stores the
// moments of that shard.
#pragma once
#include <cstdint>
#include <vector>

#include "millrace/ops/optimizer.hpp"

namespace millrace {

// Tags of the collective operations that are not for a bucket. The tag of a bucket is its number, from 0.
constexpr int stats_tag = -1, squares_tag = -2, exact_tag = -3;

struct Bucket {
  std::int64_t begin = 0, end = 0;  // elements
};

struct BucketSpec {
  std::int64_t elements = 1;  // approximate size of a bucket; it is rounded down to the alignment
  int ranks = 1, rank = 0;    // the ranks that share each bucket, and this one; ranks = 1: buckets are not sharded

  bool sharded() const { return ranks > 1; }
  std::int64_t alignment() const;  // bucket sizes are multiples of it, in elements
  // Size of a flat buffer for `count` elements. With sharding it is padded so that the last bucket divides evenly too.
  std::int64_t padded(std::int64_t count) const;
  // The buckets of padded(count) elements, from the end of the buffer to its start.
  std::vector<Bucket> split(std::int64_t count) const;
  Bucket own_shard(const Bucket&) const;
  // This rank's shards of all buckets, in ascending order; empty if buckets are not sharded.
  std::vector<OptimizerShard> shards(std::int64_t count) const;
};

}  // namespace millrace
