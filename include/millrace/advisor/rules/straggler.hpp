// Straggler: the rank that the others wait for, and why.
#pragma once
#include <string>
#include <vector>

#include "millrace/telemetry/account.hpp"

namespace millrace {

// How many of the cores that a rank may use were busy with work other than this job, on average over the run.
struct CoreContention {
  double cores = 0;   // that the rank may use; 0: nothing is known
  double others = 0;  // used by other processes
  double stolen = 0;  // used by other virtual machines on the same hardware
  double share() const { return cores > 0 ? (others + stolen) / cores : 0; }
};
CoreContention core_contention(const std::vector<RankAccount>&, int rank);

struct Straggler {
  int rank = -1;  // -1: no rank is clearly slower than the others
  std::string host, cause;
  double seconds = 0;        // per step, compared with the mean of the other ranks
  double input_seconds = 0;  // the part of `seconds` that it waits longer for samples
};
Straggler find_straggler(const std::vector<RankAccount>&);
// One line for the account, "  straggler: rank 1 on ...\n"; empty if there is none.
std::string straggler_line(const std::vector<RankAccount>&);

}  // namespace millrace
