#include "millrace/train/distributed/weight_all_gather.hpp"

#include <algorithm>

namespace millrace {

WeightAllGather::WeightAllGather(Collective& collective, Backend& backend, const BucketSpec& spec, std::int64_t count,
                                 SharedRegion master, SharedRegion weights, DType dtype)
    : collective_(collective),
      backend_(backend),
      master_(master),
      weights_(weights),
      dtype_(dtype),
      whole_(dtype == DType::f32 ? spec.padded(count) : spec.whole(count)),
      buckets_(spec.split(count)) {
  std::reverse(buckets_.begin(), buckets_.end());
  arrived_ = buckets_.size();
}

// The bucket's reduce-scatter uses the same tag. It has ended before the all-gather starts.
int WeightAllGather::tag_of(std::size_t wait) const { return int(buckets_.size() - 1 - wait); }

void WeightAllGather::begin(TimestampSeries timestamps) {
  timestamps_ = timestamps;
  arrived_ = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const std::size_t begin = std::size_t(buckets_[b].begin), count = std::size_t(buckets_[b].end) - begin;
    if (buckets_[b].begin < whole_)
      collective_.all_gather_async(master_, begin, count, DType::f32, tag_of(b));
    else
      collective_.all_gather_async(weights_, begin, count, dtype_, tag_of(b));
  }
}

void WeightAllGather::wait_for(std::int64_t, std::int64_t end) {
  for (; arrived_ < buckets_.size() && buckets_[arrived_].begin < end; ++arrived_) {
    const Bucket& b = buckets_[arrived_];
    timestamps_.record();
    collective_.wait(tag_of(arrived_));
    timestamps_.record();
    if (dtype_ == DType::f32 || b.begin >= whole_) continue;
    backend_.convert(static_cast<std::byte*>(weights_.data) + std::size_t(b.begin) * size_of(dtype_), dtype_,
                     static_cast<float*>(master_.data) + b.begin, DType::f32, b.end - b.begin);
  }
}

void WeightAllGather::finish() {
  wait_for(0, buckets_.back().end);
  collective_.finish();
}

}  // namespace millrace
