// Reducer: cuts the flat gradient into buckets, from its end as backward fills it, and starts each bucket's sum when
// its last element is announced. Bucket i is begun before bucket i+1 on every rank. With compression a bucket is
// rounded to 16 bits, summed, and widened again. Of divided buckets each rank gets the sum of its own part alone.
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
  DType grad_dtype = DType::f32;  // bf16 or f16: what travels
  bool overlap = true;            // false: all sums start in finish()
  bool single_rank = false;       // one rank: nothing to sum
};

class Reducer : public GradReadyHook {
 public:
  // gradient (float32) and packed (`compress`, unused without compression) belong to the collective.
  Reducer(Collective&, Backend&, const ReducerSpec&, SharedRegion gradient, SharedRegion grad_16bit);
  void on_gradient_ready(std::int64_t begin, std::int64_t end) override;
  void contribute_zeros();  // a rank without rows in this step: instead of any backward
  // Marks of the step that begins, one for each of milestones(): when those elements, from the gradient's end, were
  // final, before their sum is begun. A few at most, evenly among the buckets, and the last.
  void set_ready_timestamps(TimestampSeries marks) { marks_ = marks; }
  const std::vector<std::int64_t>& milestones() const { return milestones_; }
  // Waits for all sums and widens; throws when a range was never announced. The next step may begin afterwards.
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
  std::size_t next_ = 0;               // first bucket not yet begun
  std::size_t noted_ = 0;              // first not yet marked as ready, nor passed over
  std::vector<std::int64_t> milestones_;
  TimestampSeries marks_;
};

}  // namespace millrace
