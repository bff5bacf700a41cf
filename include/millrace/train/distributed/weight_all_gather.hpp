// WeightAllGather: collects the weights that other ranks have updated (ZeRO stage 1), bucket by bucket, while the
// forward pass runs. Each op waits only for the buckets up to the end of its own weights.
#pragma once
#include <vector>

#include "millrace/comm/collective.hpp"
#include "millrace/model/program.hpp"
#include "millrace/train/distributed/buckets.hpp"

namespace millrace {

class WeightAllGather : public ParamReadyHook {
 public:
  // master: float32 weights; the region belongs to the collective. weights: the copy in DType, which is updated as
  // buckets arrive; null with float32.
  WeightAllGather(Collective&, Backend&, const BucketSpec&, std::int64_t count, SharedRegion master, void* weights,
                  DType);
  // Starts the all-gather of all buckets. Call it on every rank once between two optimizer steps. The timestamps are
  // recorded before and after each wait. A captured group that contains begin() must contain finish() too.
  void begin(TimestampSeries = {});
  void wait_for(std::int64_t begin, std::int64_t end) override;
  void finish();  // waits for the buckets that no op has waited for
  int waits() const { return int(buckets_.size()); }
  int tag_of(std::size_t wait) const;  // tag of the all-gather that this wait is for: the number of its bucket

 private:
  Collective& collective_;
  Backend& backend_;
  SharedRegion master_;
  void* weights_;
  DType dtype_;
  std::vector<Bucket> buckets_;  // in forward order
  std::size_t arrived_ = 0;
  TimestampSeries timestamps_;
};

}  // namespace millrace
