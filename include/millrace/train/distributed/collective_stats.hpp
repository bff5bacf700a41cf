// What sums over ranks cost, bucket by bucket, from the collective's spans of each step.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "millrace/comm/collective.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

// Seconds of a step in which the compute stream stood still for other ranks, each until what it waited for had ended.
struct CollectiveWaits {
  std::vector<double> gathers{};  // by tag
  double sums = 0;                // for all sums but those of squares; those inside of some begin_* are part of it
  double squares = 0;
  // When the waits began, from the step's begin on; that, on the clock of the spans.
  double began = 0, sums_needed = 0, squares_needed = 0;
  std::vector<double> gathers_needed{};  // by tag
};

class CollectiveStats {
 public:
  void add(const std::vector<CommSpan>&, const CollectiveWaits&);  // of a step
  std::vector<CollectiveOpStats> stats() const;                    // by tag and operation, buckets first
  double busy_seconds() const { return busy_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::map<std::pair<int, CollectiveOp>, CollectiveOpStats> stats_;
  std::vector<double> gathered_;  // by tag, when the newest gather had ended; kept, so that a step allocates nothing
  double busy_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace millrace
