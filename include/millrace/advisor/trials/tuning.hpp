// Tuning: a greedy search over the keys that decide the speed. Each trial is measured against the best configuration so
// far, in this process, with the real data, network and ranks. It trains nothing and writes nothing.
#pragma once
#include <set>
#include <string>

#include "millrace/advisor/rules/tuning.hpp"
#include "millrace/config/arguments.hpp"

namespace millrace {

struct TuneOptions {
  double seconds = 0.4;        // of each measurement, approximately
  double budget = 120;         // seconds after which no further trial begins
  std::set<std::string> keep;  // keys that keep their values
  bool free_batch = false;     // search the global batch too
};
const std::vector<std::string>& tuned_keys();

// The result is the same on all ranks, except for texts, which are rank 0's. Collective.
TuneOutcome tune(World&, const ParsedArguments&, const TuneOptions&);

}  // namespace millrace
