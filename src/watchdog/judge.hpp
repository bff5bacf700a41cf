// Decides from the positions of all ranks whether the run cannot go on, and because of which ranks. A pure function.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "millrace/watchdog/position.hpp"

namespace millrace::watchdog {

enum class Cause {
  silent,   // the rank is stopped or dead, or its host is cut off
  file,     // it waits for a file system
  idle,     // it does not wait for ranks, but neither computes nor goes on
  busy,     // it computes, but other ranks have waited for it very long
  behind,   // it waits for ranks that have gone on to a later wait
  unknown,  // all ranks wait at the same place
  missing,  // all known ranks do, but there are ranks of which nothing is known
};

struct Verdict {
  Cause cause;
  std::vector<Position> blamed;  // for `unknown` and `missing`: all known ranks
  double seconds;                // without progress
  // For `missing`.
  std::vector<Position> missing = {};  // the ranks of which nothing is known; the host may be empty
  bool whole_host = false;             // none of them is on this host
};

// timeout: seconds.
std::optional<Verdict> judge(const std::vector<Position>&, double timeout);
// "rank 1 on node7 is stopped or dead: ... . what to do".
std::string describe(const Verdict&);
// The flight record: JSON with the verdict and all positions. time: of the end, in UTC.
std::string flight_record(const std::string& reason, const std::vector<Position>&, const std::string& time);

}  // namespace millrace::watchdog
