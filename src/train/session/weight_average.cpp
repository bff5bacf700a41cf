#include "millrace/train/session/weight_average.hpp"

#include <algorithm>

namespace millrace {
namespace {

constexpr std::int64_t spare_elements = 1 << 20;

std::int64_t own_count(const BucketSpec& buckets, std::int64_t count) { return buckets.padded(count) / buckets.ranks; }

}  // namespace

std::size_t WeightAverage::bytes(const BucketSpec& buckets, std::int64_t count) {
  const std::int64_t own = own_count(buckets, count);
  return std::size_t(own + std::min(own, spare_elements)) * sizeof(float);
}

WeightAverage::WeightAverage(ExecutionContext& compute, const BucketSpec& buckets, std::int64_t count, float* master)
    : compute_(compute), master_(master) {
  const std::int64_t own = own_count(buckets, count);
  average_ = Buffer(*compute.device, MemoryKind::device, std::size_t(own) * sizeof(float));
  spare_ = Buffer(*compute.device, MemoryKind::device, std::size_t(std::min(own, spare_elements)) * sizeof(float));
  if (!buckets.sharded()) {
    ranges_.push_back({0, 0, own});
  } else {
    for (const StoredRange& shard : buckets.stored(count, 0))
      for (const StoredRange& r : buckets.stored(count, buckets.whole(count)))
        if (shard.begin >= r.begin && shard.end <= r.end)
          ranges_.push_back({shard.offset, r.offset + shard.begin - r.begin, shard.end - shard.begin});
  }
  reset();
}

void WeightAverage::copy(float* to, const float* from, std::int64_t count) {
  compute_.backend->convert(to, DType::f32, from, DType::f32, count);
}

void WeightAverage::reset() {
  for (const Range& r : ranges_) copy(data() + r.average, master_ + r.master, r.count);
}

void WeightAverage::swap() {
  for (const Range& r : ranges_)
    for (std::int64_t at = 0; at < r.count; at += spare_elements) {
      const std::int64_t count = std::min(spare_elements, r.count - at);
      float* average = data() + r.average + at;
      float* master = master_ + r.master + at;
      copy(spare_.as<float>(), master, count);
      copy(master, average, count);
      copy(average, spare_.as<float>(), count);
    }
}

}  // namespace millrace
