#include "millrace/train/distributed/reducer.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::size_t most_milestones = 16;

// Every so many buckets, counted so that the last is one.
bool is_milestone(std::size_t bucket, std::size_t buckets) {
  const std::size_t each = (buckets + most_milestones - 1) / most_milestones;
  return (buckets - 1 - bucket) % each == 0;
}

}  // namespace

Reducer::Reducer(Collective& collective, Backend& backend, const ReducerSpec& spec, SharedRegion gradient,
                 SharedRegion packed)
    : collective_(collective),
      backend_(backend),
      spec_(spec),
      gradient_(gradient),
      packed_(packed),
      buckets_(spec.buckets.cut(spec.count)),
      missing_(buckets_.size()) {
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (is_milestone(b, buckets_.size())) milestones_.push_back(spec_.count - buckets_[b].begin);
  expect_all();
}

// The padding behind the last parameter is never announced.
void Reducer::expect_all() {
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    missing_[b] = std::min(spec_.count, buckets_[b].end) - buckets_[b].begin;
  next_ = noted_ = 0;
}

void Reducer::ready(std::int64_t begin, std::int64_t end) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const std::int64_t overlap = std::min(end, buckets_[b].end) - std::max(begin, buckets_[b].begin);
    if (overlap > 0) missing_[b] -= overlap;
  }
  note_ready();
  if (spec_.overlap) launch_ready();
}

void Reducer::note_ready() {
  for (; noted_ < buckets_.size() && missing_[noted_] == 0; ++noted_)
    if (is_milestone(noted_, buckets_.size())) marks_.mark();
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
  const auto begin_sum = [&](const SharedRegion& region) {
    if (spec_.buckets.divided())
      collective_.begin_reduce_scatter(region, begin, count, spec_.compress, int(b));
    else
      collective_.begin_sum(region, begin, count, spec_.compress, int(b));
  };
  if (spec_.compress == DType::f32) return begin_sum(gradient_);
  char* packed = static_cast<char*>(packed_.data) + begin * size_of(spec_.compress);
  backend_.convert(packed, spec_.compress, static_cast<float*>(gradient_.data) + begin, DType::f32,
                   bucket.end - bucket.begin);
  begin_sum(packed_);
}

void Reducer::widen(const Bucket& b) {
  if (spec_.compress == DType::f32) return;
  backend_.convert(static_cast<float*>(gradient_.data) + b.begin, DType::f32,
                   static_cast<char*>(packed_.data) + std::size_t(b.begin) * size_of(spec_.compress), spec_.compress,
                   b.end - b.begin);
}

void Reducer::finish() {
  launch_ready();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    MR_CHECK(missing_[b] == 0, "bucket ", b, " was announced ", missing_[b] > 0 ? "in part only" : "twice");
  if (!spec_.alone) {
    collective_.finish();
    if (spec_.buckets.divided())
      for (const Bucket& b : buckets_) widen(spec_.buckets.own(b));
    else
      widen({0, spec_.count});
  }
  expect_all();
}

}  // namespace millrace
