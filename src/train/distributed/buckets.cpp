#include "millrace/train/distributed/buckets.hpp"

#include <algorithm>

#include "millrace/model/layout.hpp"

namespace millrace {

std::int64_t BucketSpec::alignment() const {
  return sharded() ? ranks * OptimizerSpec::chunk_size : ParameterLayout::padding;
}

std::int64_t BucketSpec::padded(std::int64_t count) const {
  return sharded() ? (count + alignment() - 1) / alignment() * alignment() : count;
}

std::vector<Bucket> BucketSpec::split(std::int64_t count) const {
  const std::int64_t size = std::max(alignment(), elements / alignment() * alignment());
  std::vector<Bucket> buckets;
  for (std::int64_t end = padded(count); end > 0; end -= size)
    buckets.push_back({std::max<std::int64_t>(0, end - size), end});
  return buckets;
}

Bucket BucketSpec::own_shard(const Bucket& b) const {
  const std::int64_t part = (b.end - b.begin) / ranks;
  return {b.begin + rank * part, b.begin + (rank + 1) * part};
}

std::vector<OptimizerShard> BucketSpec::shards(std::int64_t count) const {
  std::vector<OptimizerShard> out;
  if (!sharded()) return out;
  for (const Bucket& b : split(count)) out.push_back({own_shard(b).begin, own_shard(b).end - own_shard(b).begin});
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace millrace
