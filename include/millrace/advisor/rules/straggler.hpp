// Which rank the others wait for, and why.
#pragma once
#include <string>
#include <vector>

#include "millrace/telemetry/account.hpp"

namespace millrace {

// Cores' worth of those that a rank may run on that were not this job's. Of none: it is not known.
struct CoreContention {
  double of = 0, others = 0, stolen = 0;  // cores; used by other processes; by other machines of the same hardware
  double share() const { return of > 0 ? (others + stolen) / of : 0; }
};
CoreContention core_contention(const std::vector<RankAccount>&, int rank);

// The rank that the others wait for at each step, and why as far as the figures tell.
struct Straggler {
  int rank = -1;  // none
  std::string host, cause;
  double seconds = 0;        // of a step, more than the mean of the others
  double input_seconds = 0;  // of which it waits for samples
};
Straggler straggler(const std::vector<RankAccount>&);
// One line for the account: "straggler: rank 1 on ..."; empty when there is none.
std::string straggler_line(const std::vector<RankAccount>&);

}  // namespace millrace
