#include "millrace/train/distributed/reducer.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::size_t most_milestones = 16;

// Milestones are evenly spaced, and the last bucket is one.
bool is_milestone(std::size_t bucket, std::size_t buckets) {
  const std::size_t each = (buckets + most_milestones - 1) / most_milestones;
  return (buckets - 1 - bucket) % each == 0;
}

}  // namespace

Reducer::Reducer(Collective& collective, Backend& backend, const ReducerSpec& spec, SharedRegion gradient,
                 SharedRegion grad_16bit)
    : collective_(collective),
      backend_(backend),
      spec_(spec),
      gradient_(gradient),
      grad_16bit_(grad_16bit),
      buckets_(spec.buckets.split(spec.count)),
      missing_(buckets_.size()) {
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (is_milestone(b, buckets_.size())) milestones_.push_back(spec_.count - buckets_[b].begin);
  expect_all();
}

// Sets missing_ for a new step. The padding after the last parameter does not count, because it is never announced.
void Reducer::expect_all() {
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    missing_[b] = std::min(spec_.count, buckets_[b].end) - buckets_[b].begin;
  next_ = noted_ = 0;
}

void Reducer::on_gradient_ready(std::int64_t begin, std::int64_t end) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const std::int64_t overlap = std::min(end, buckets_[b].end) - std::max(begin, buckets_[b].begin);
    if (overlap > 0) missing_[b] -= overlap;
  }
  record_ready();
  if (spec_.overlap) launch_ready();
}

void Reducer::record_ready() {
  for (; noted_ < buckets_.size() && missing_[noted_] == 0; ++noted_)
    if (is_milestone(noted_, buckets_.size())) timestamps_.record();
}

void Reducer::clear_gradient() {
  backend_.device().fill_zero(Stream::compute, gradient_.data, std::size_t(spec_.count) * sizeof(float));
}

void Reducer::contribute_zeros() {
  clear_gradient();
  on_gradient_ready(0, spec_.count);
}

void Reducer::launch_ready() {
  while (next_ < buckets_.size() && missing_[next_] == 0) launch(next_++);
}

void Reducer::launch(std::size_t b) {
  if (spec_.single_rank) return;
  const Bucket& bucket = buckets_[b];
  const std::size_t begin = std::size_t(bucket.begin), count = std::size_t(bucket.end - bucket.begin);
  const auto all_reduce_async = [&](const SharedRegion& region) {
    if (spec_.buckets.sharded())
      collective_.reduce_scatter_async(region, begin, count, spec_.grad_dtype, int(b));
    else
      collective_.all_reduce_async(region, begin, count, spec_.grad_dtype, int(b));
  };
  if (spec_.grad_dtype == DType::f32) return all_reduce_async(gradient_);
  char* grad_16bit = static_cast<char*>(grad_16bit_.data) + begin * size_of(spec_.grad_dtype);
  backend_.convert(grad_16bit, spec_.grad_dtype, static_cast<float*>(gradient_.data) + begin, DType::f32,
                   bucket.end - bucket.begin);
  all_reduce_async(grad_16bit_);
}

void Reducer::widen(const Bucket& b) {
  if (spec_.grad_dtype == DType::f32) return;
  backend_.convert(static_cast<float*>(gradient_.data) + b.begin, DType::f32,
                   static_cast<char*>(grad_16bit_.data) + std::size_t(b.begin) * size_of(spec_.grad_dtype),
                   spec_.grad_dtype, b.end - b.begin);
}

void Reducer::finish() {
  launch_ready();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    MR_CHECK(missing_[b] == 0, "elements of gradient bucket {} were {}", b,
             missing_[b] > 0 ? "not announced" : "announced twice");
  if (!spec_.single_rank) {
    collective_.finish();
    if (spec_.buckets.sharded())
      for (const Bucket& b : buckets_) widen(spec_.buckets.own_shard(b));
    else
      widen({0, spec_.count});
  }
  expect_all();
}

}  // namespace millrace
