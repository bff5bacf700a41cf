// Gatherer: brings the weights that other ranks have updated (ZeRO stage 1), bucket by bucket, while the forward pass
// runs: each op waits for the buckets that it reads and for no later one.
#pragma once
#include <vector>

#include "millrace/comm/collective.hpp"
#include "millrace/model/program.hpp"
#include "millrace/train/distributed/buckets.hpp"

namespace millrace {

class WeightAllGather : public ParamReadyHook {
 public:
  // master belongs to the collective; weights: rounded to dtype from what has arrived, null with float32.
  WeightAllGather(Collective&, Backend&, const BucketSpec&, std::int64_t count, SharedRegion master, void* weights,
                  DType);
  void begin(
      TimestampSeries = {});  // by every rank, after each update and before the next; with finish() in one recording
  void wait_for(std::int64_t begin, std::int64_t end) override;
  void finish();  // what no op has asked for; ends the round, as a recording must that holds no other sums
  int waits() const { return int(buckets_.size()); }
  int tag_of(std::size_t wait) const;  // of the gather that it is for: its bucket's number

 private:
  Collective& collective_;
  Backend& backend_;
  SharedRegion master_;
  void* weights_;
  DType dtype_;
  std::vector<Bucket> buckets_;  // in forward order
  std::size_t arrived_ = 0;
  TimestampSeries marks_;
};

}  // namespace millrace
