// Whether a run's network fits into memory: decided from sizes alone, before anything is taken.
#pragma once
#include <functional>

#include "millrace/train/session/session.hpp"

namespace millrace {

struct MemoryFit {
  NetworkPlan plan;
  std::string problem;  // what is needed, what there is, and the largest train.micro_batch that fits; "" when it fits
};
// The same on all ranks, for the most memory that any needs and the least that any has. Collective.
MemoryFit check_memory_fit(Session&);
NetworkPlan plan_within_memory(Session&);  // Error(config) with the problem
// The largest micro-batch of at most so many samples that fits, or 0. Collective.
std::int64_t max_micro_batch_that_fits(Session&, std::int64_t wanted);

// The most rows below `too_many`, which is known to be, whose bytes stay within the limit, or 0. Bytes rise with the
// rows, nearly in a line: asks for few.
std::int64_t max_rows_within(std::int64_t too_many, std::size_t limit,
                             const std::function<std::size_t(std::int64_t rows)>& bytes);

}  // namespace millrace
