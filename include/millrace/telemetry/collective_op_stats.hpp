// How long the collectives of a run took, bucket by bucket.
#pragma once
#include <cstdint>

#include "millrace/base/collective_op.hpp"

namespace millrace {

// One operation on one bucket, summed over all steps. In each step, in this order: the bucket becomes ready, it is
// queued until all ranks have arrived, the collective is busy, and at some point the step needs the result.
struct CollectiveOpStats {
  int tag = 0;  // the bucket, from 0; negative: something other than a bucket, such as batch statistics
  std::uint64_t times = 0, bytes = 0;  // number of collectives, and their bytes together
  double queued = 0;                   // seconds from ready until all ranks have arrived
  double busy = 0;                     // seconds that the collective ran
  double exposed = 0;                  // the part of `busy` that the step waited for
  CollectiveOp op = CollectiveOp::all_reduce;
  double ready = 0, needed = 0;  // seconds since the step began, summed over all steps

  // Bus bandwidth in bytes/s: what each link of a ring of `ranks` ranks would carry.
  double bus_rate(double ranks) const { return busy > 0 ? bus_factor(op, ranks) * double(bytes) / busy : 0; }
};

}  // namespace millrace
