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
  // master: float32 weights. weights: the copy in DType; unused with float32. Both regions belong to the collective.
  // Buckets of float32 parameters (BucketSpec::whole()) are all-gathered in the master and then converted, the others
  // are all-gathered in the weights.
  WeightAllGather(Collective&, Backend&, const BucketSpec&, std::int64_t count, SharedRegion master,
                  SharedRegion weights, DType);
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
  SharedRegion master_, weights_;
  DType dtype_;
  std::int64_t whole_;           // elements that are all-gathered as float32
  std::vector<Bucket> buckets_;  // in forward order
  std::size_t arrived_ = 0;
  TimestampSeries timestamps_;
};

}  // namespace millrace
