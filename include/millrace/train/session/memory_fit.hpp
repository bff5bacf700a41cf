// Checks whether the network of a run fits into device memory. It computes sizes only and allocates nothing.
#pragma once
#include <functional>

#include "millrace/train/session/session.hpp"

namespace millrace {

struct MemoryFit {
  NetworkPlan plan;
  // "" if it fits. Otherwise an error message with the needed and the available memory and the largest
  // train.micro_batch that fits.
  std::string problem;
};
// Compares the largest need of any rank with the smallest memory of any rank, so the problem is the same on all ranks.
// Collective.
MemoryFit check_memory_fit(Session&);
// The plan, or Error(config) with the problem. Collective.
NetworkPlan plan_within_memory(Session&);
// The largest micro-batch of at most `wanted` samples that fits; 0 if none does. Collective.
std::int64_t max_micro_batch_that_fits(Session&, std::int64_t wanted);

// The largest number of rows below `too_many` with bytes(rows) <= limit; 0 if even one row is too much.
// bytes(too_many) must exceed the limit. Memory grows almost linearly with the rows, so few evaluations of bytes()
// suffice.
std::int64_t max_rows_within(std::int64_t too_many, std::size_t limit,
                             const std::function<std::size_t(std::int64_t rows)>& bytes);

}  // namespace millrace
