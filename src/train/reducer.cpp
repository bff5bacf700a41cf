#include "millrace/train/reducer.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {

std::vector<Bucket> cut_buckets(std::int64_t count, std::int64_t bucket_elements) {
  const std::int64_t unit = ParameterLayout::padding;
  const std::int64_t size = std::max(unit, bucket_elements / unit * unit);
  std::vector<Bucket> buckets;
  for (std::int64_t end = count; end > 0; end -= size) buckets.push_back({std::max<std::int64_t>(0, end - size), end});
  return buckets;
}

Reducer::Reducer(Collective& collective, Backend& backend, const ReducerSpec& spec, SharedRegion gradient,
                 SharedRegion packed)
    : collective_(collective),
      backend_(backend),
      spec_(spec),
      gradient_(gradient),
      packed_(packed),
      buckets_(cut_buckets(spec.count, spec.bucket_elements)) {
  for (const Bucket& b : buckets_) missing_.push_back(b.end - b.begin);
}

void Reducer::ready(std::int64_t begin, std::int64_t end) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const std::int64_t overlap = std::min(end, buckets_[b].end) - std::max(begin, buckets_[b].begin);
    if (overlap > 0) missing_[b] -= overlap;
  }
  if (spec_.overlap) launch_ready();
}

void Reducer::contribute_zeros() {
  backend_.device().fill_zero(Lane::compute, gradient_.data, std::size_t(spec_.count) * sizeof(float));
  ready(0, spec_.count);
}

void Reducer::launch_ready() {
  while (next_ < buckets_.size() && missing_[next_] == 0) launch(next_++);
}

void Reducer::launch(std::size_t b) {
  if (spec_.alone) return;
  const Bucket& bucket = buckets_[b];
  const std::size_t begin = std::size_t(bucket.begin), count = std::size_t(bucket.end - bucket.begin);
  if (spec_.compress == DType::f32) {
    collective_.begin_sum(gradient_, begin, count, DType::f32, int(b));
    return;
  }
  char* packed = static_cast<char*>(packed_.data) + begin * size_of(spec_.compress);
  backend_.convert(packed, spec_.compress, static_cast<float*>(gradient_.data) + begin, DType::f32,
                   bucket.end - bucket.begin);
  collective_.begin_sum(packed_, begin, count, spec_.compress, int(b));
}

void Reducer::finish() {
  launch_ready();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    MR_CHECK(missing_[b] == 0, "bucket ", b, " was announced ", missing_[b] > 0 ? "in part only" : "twice");
  if (!spec_.alone) {
    collective_.finish();
    if (spec_.compress != DType::f32)
      backend_.convert(gradient_.data, DType::f32, packed_.data, spec_.compress, spec_.count);
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) missing_[b] = buckets_[b].end - buckets_[b].begin;
  next_ = 0;
}

}  // namespace millrace
