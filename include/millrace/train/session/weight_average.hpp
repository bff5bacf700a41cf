// WeightAverage: the exponential moving average of the weights (optim.ema). The optimizer updates it. With sharded
// buckets a rank has the averages of its own shards only, like the moments.
#pragma once
#include <cstdint>
#include <vector>

#include "millrace/compute/execution_context.hpp"
#include "millrace/train/distributed/buckets.hpp"

namespace millrace {

class WeightAverage {
 public:
  // master: the weights that this rank stores, of `count` elements in all (Network::master).
  WeightAverage(ExecutionContext&, const BucketSpec&, std::int64_t count, float* master);
  static std::size_t bytes(const BucketSpec&, std::int64_t count);  // of memory
  float* data() const { return average_.as<float>(); }
  void reset();  // the averages become the weights
  // Exchanges the weights that this rank updates with their averages. Only enqueues work.
  void swap();

 private:
  struct Range {
    std::int64_t average = 0, master = 0, count = 0;  // first elements in both buffers
  };
  void copy(float* to, const float* from, std::int64_t count);
  ExecutionContext& compute_;
  float* master_;
  Buffer average_, spare_;
  std::vector<Range> ranges_;
};

}  // namespace millrace
