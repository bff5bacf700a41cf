// CollectiveStats: how long the collective operations of a run take, and how much of that time the steps wait for them,
// by bucket and operation. It is computed from the collective's spans and the waits of each step.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "millrace/comm/collective.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

// Seconds of one step in which the compute stream waited for collective operations.
struct CollectiveWaits {
  std::vector<double> gathers{};  // for the weight all-gathers, by tag
  // For gradients and batch statistics. Includes the operations that ran inside the call that started them.
  double sums = 0;
  double squares = 0;  // in the optimizer: for the sums of squares of the gradient norm, and for updates of muon
  double began = 0;    // when the step began, on the clock of the spans
  // When these waits began, in seconds since the step began.
  double sums_needed = 0, squares_needed = 0;
  std::vector<double> gathers_needed{};  // by tag
};

class CollectiveStats {
 public:
  void add(const std::vector<CommSpan>&, const CollectiveWaits&);  // adds one step
  std::vector<CollectiveOpStats> stats() const;                    // by tag and operation, buckets first
  double busy_seconds() const { return busy_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::map<std::pair<int, CollectiveOp>, CollectiveOpStats> stats_;
  std::vector<double> gathered_;  // end of the newest all-gather, by tag; a member so that a step allocates nothing
  double busy_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace millrace
