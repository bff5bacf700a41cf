// Reducer: all-reduces the gradient in buckets while the backward pass runs.
//
// The flat gradient is cut into buckets from its end, because the backward pass fills it from the end. The all-reduce
// of a bucket starts when its last element is announced as final. All ranks start bucket i before bucket i + 1. With
// 16-bit gradients (comm.grad_dtype) a bucket is rounded to 16 bits, reduced, and converted back to float32. Sharded
// buckets (optim.zero) are reduce-scattered: each rank gets the sum of its own shard only.
#pragma once
#include <cstdint>
#include <vector>

#include "millrace/comm/collective.hpp"
#include "millrace/model/program.hpp"
#include "millrace/train/distributed/buckets.hpp"
#include "millrace/train/distributed/weight_all_gather.hpp"

namespace millrace {

struct ReducerSpec {
  std::int64_t count = 0;  // elements of the gradient
  BucketSpec buckets;
  DType grad_dtype = DType::f32;  // data type during the all-reduce: f32, bf16 or f16
  bool overlap = true;            // false: all all-reduces start in finish()
  bool single_rank = false;       // there is nothing to reduce: one rank, or the sums are already made
};

class Reducer : public GradReadyHook {
 public:
  // The regions belong to the collective. gradient: float32. grad_16bit: the same elements in grad_dtype; unused with
  // f32.
  Reducer(Collective&, Backend&, const ReducerSpec&, SharedRegion gradient, SharedRegion grad_16bit);
  void on_gradient_ready(std::int64_t begin, std::int64_t end) override;
  // Contributes a zero gradient: for a rank that has no rows in this step, and so no backward pass.
  void contribute_zeros();
  void clear_gradient();  // the first half of it, if the ranges are announced one by one
  // Milestones: numbers of elements, counted from the end of the gradient. They lie at the ends of at most 16 buckets
  // spread evenly, the last bucket among them. A step records one timestamp for each milestone when these elements are
  // final, before their all-reduce starts. Call begin_step() before the last backward pass of a step; it forgets a step
  // that was not finished, because its capture failed.
  void begin_step(TimestampSeries timestamps) {
    timestamps_ = timestamps;
    expect_all();
  }
  const std::vector<std::int64_t>& milestones() const { return milestones_; }
  // Waits for all all-reduces and converts the result to float32. Error(internal) if a range was not announced exactly
  // once. Afterwards the reducer is ready for the next step.
  void finish();
  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  void record_ready();
  void launch_ready();
  void launch(std::size_t bucket);
  void widen(const Bucket&);
  void expect_all();
  Collective& collective_;
  Backend& backend_;
  ReducerSpec spec_;
  SharedRegion gradient_, grad_16bit_;
  std::vector<Bucket> buckets_;
  std::vector<std::int64_t> missing_;  // elements not yet announced, by bucket
  std::size_t next_ = 0;               // first bucket whose all-reduce has not started
  std::size_t noted_ = 0;              // first bucket that record_ready() has not seen complete
  std::vector<std::int64_t> milestones_;
  TimestampSeries timestamps_;
};

}  // namespace millrace
