// Buckets: how the flat buffers are cut for communication. With ZeRO stage 1 (Rajbhandari et al. 2020) each bucket is
// divided evenly: part r of it is updated by rank r, which alone keeps that part's moments.
#pragma once
#include <cstdint>
#include <vector>

#include "millrace/ops/optimizer.hpp"

namespace millrace {

// Tags of operations besides the buckets', which have their numbers from 0.
constexpr int stats_tag = -1, squares_tag = -2;

struct Bucket {
  std::int64_t begin = 0, end = 0;  // elements
};

struct BucketSpec {
  std::int64_t elements = 1;  // of a bucket, about
  int ranks = 1, rank = 0;    // 1: buckets are not divided

  bool sharded() const { return ranks > 1; }
  std::int64_t alignment() const;                 // buckets are multiples of it
  std::int64_t padded(std::int64_t count) const;  // what a flat buffer needs: the last bucket is divided evenly too
  std::vector<Bucket> split(std::int64_t count) const;  // of padded(count) elements, the last first
  Bucket own_shard(const Bucket&) const;
  std::vector<OptimizerShard> shards(std::int64_t count) const;  // own parts, in order; empty when not divided
};

}  // namespace millrace
