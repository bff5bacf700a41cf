#include "millrace/train/distributed/gatherer.hpp"

#include <algorithm>

namespace millrace {

Gatherer::Gatherer(Collective& collective, Backend& backend, const BucketSpec& spec, std::int64_t count,
                   SharedRegion master, void* weights, DType dtype)
    : collective_(collective),
      backend_(backend),
      master_(master),
      weights_(weights),
      dtype_(dtype),
      buckets_(spec.cut(count)) {
  std::reverse(buckets_.begin(), buckets_.end());
  arrived_ = buckets_.size();
}

// As its sum has it, which is not under way here.
int Gatherer::tag_of(std::size_t wait) const { return int(buckets_.size() - 1 - wait); }

void Gatherer::begin(MarkSeries marks) {
  marks_ = marks;
  arrived_ = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    collective_.begin_all_gather(master_, std::size_t(buckets_[b].begin),
                                 std::size_t(buckets_[b].end - buckets_[b].begin), DType::f32, tag_of(b));
}

void Gatherer::need(std::int64_t, std::int64_t end) {
  for (; arrived_ < buckets_.size() && buckets_[arrived_].begin < end; ++arrived_) {
    const Bucket& b = buckets_[arrived_];
    marks_.mark();
    collective_.wait(tag_of(arrived_));
    marks_.mark();
    if (!weights_) continue;
    backend_.convert(static_cast<std::byte*>(weights_) + std::size_t(b.begin) * size_of(dtype_), dtype_,
                     static_cast<float*>(master_.data) + b.begin, DType::f32, b.end - b.begin);
  }
}

void Gatherer::finish() {
  need(0, buckets_.back().end);
  collective_.finish();
}

}  // namespace millrace
