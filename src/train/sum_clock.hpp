// What sums over ranks cost, bucket by bucket, from the collective's spans of each step.
#pragma once
#include <map>
#include <vector>

#include "millrace/comm/collective.hpp"
#include "millrace/telemetry/account.hpp"

namespace millrace {

class SumClock {
 public:
  // The operations of a step in which the compute lane waited `waited` seconds for them, until the last had ended.
  void add(const std::vector<CommSpan>&, double waited);
  std::vector<SumFigures> figures() const;  // by tag, buckets first
  double busy_seconds() const { return busy_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::map<int, SumFigures> by_tag_;
  double busy_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace millrace
