// Tuning: a greedy search over the keys that speed hangs on, by trials beside the best configuration so far, in this
// process, with the real data, network and ranks. Trains nothing and writes nothing.
#pragma once
#include <set>
#include <string>

#include "millrace/advisor/rules/tuning.hpp"
#include "millrace/config/arguments.hpp"

namespace millrace {

struct TuneOptions {
  double seconds = 0.4;        // of each measurement
  double budget = 120;         // seconds after which no further trial begins
  std::set<std::string> keep;  // keys that stay as they are
  bool free_batch = false;     // also the global batch
};
const std::vector<std::string>& tuned_keys();

// The same on all ranks but for texts, which are rank 0's. Collective.
TuneOutcome tune(World&, const ParsedArguments&, const TuneOptions&);

}  // namespace millrace
