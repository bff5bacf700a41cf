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

std::int64_t BucketSpec::whole(std::int64_t count) const {
  return sharded() ? padded(std::min(count, f32_count)) : count;
}

std::vector<Bucket> BucketSpec::split(std::int64_t count) const {
  const std::int64_t size = std::max(alignment(), elements / alignment() * alignment());
  std::vector<Bucket> buckets;
  const auto cut = [&](std::int64_t begin, std::int64_t end) {
    for (; end > begin; end -= size) buckets.push_back({std::max(begin, end - size), end});
  };
  const std::int64_t first = sharded() ? whole(count) : 0;
  cut(first, padded(count));
  cut(0, first);
  return buckets;
}

std::vector<Bucket> BucketSpec::with_matrices(std::int64_t count, const OptimizerSpec& optimizer) const {
  std::vector<Bucket> out = split(count);
  std::erase_if(out, [&](const Bucket& b) {
    return std::ranges::none_of(optimizer.segments, [&](const OptimizerSegment& s) {
      return s.rows > 0 && s.begin < b.end && s.begin + s.count > b.begin;
    });
  });
  return out;
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

std::vector<StoredRange> BucketSpec::stored(std::int64_t count, std::int64_t whole) const {
  std::vector<StoredRange> out;
  if (whole > 0) out.push_back({0, whole, 0});
  std::int64_t offset = whole;
  for (const OptimizerShard& s : shards(count)) {
    if (s.begin < whole) continue;
    out.push_back({s.begin, s.begin + s.count, offset});
    offset += s.count;
  }
  return out;
}

}  // namespace millrace
