// Verdict: what bounds a run, and what to change. Pure functions: from measurements to changes worth trying, and from
// those tried to findings. No gain is assumed: each was measured by running with the change.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

enum class Bound { input, sums, compute };

// Of one configuration, on so many ranks.
struct Evidence {
  double step = 0;                        // seconds: as configured
  double without_input = 0;               // with batches that are there at once
  double without_sums = 0;                // and with ranks that do not sum
  double batch = 0;                       // samples of a step
  double loader_rate = 0;                 // samples/s that the loaders deliver alone
  int ranks = 1, workers = 0, cores = 1;  // workers and cores of a rank
  bool gpu = false, chunked = false;
  std::string precision, compress, reader, fusion;
  std::uint64_t bucket = 0, chunk_cache = 0;
  int prefetch = 0;  // 0: auto, which needs no trial

  double share(Bound) const;  // of the step; they sum to 1
};

// A change of one key that may help.
struct Change {
  Bound bound = Bound::input;  // what it is against
  std::string key, from, to;
  std::string caution;  // what else it changes; empty: the results of training stay as they are
};
// The table of rules: only against what takes a share of the step worth it, each applicable one.
std::vector<Change> changes_to_try(const Evidence&);

struct Trial {
  Change change;
  double step = 0;      // seconds, measured with the change
  double beside = 0;    // seconds as configured, measured next to it
  std::string failure;  // it did not run; the reason
};

struct Finding {
  Bound bound = Bound::input;
  double gain = 1;       // predicted speed over today's
  std::string evidence;  // measured
  std::string advice;    // "data.workers 1 -> 3"
  std::string caution;
};
// The largest gain first; only changes whose gain stands out of the noise.
std::vector<Finding> findings(const Evidence&, const std::vector<Trial>&);
// One line first: the bound, by how much, what to change and what it gives; then the evidence and all findings.
std::string verdict(const Evidence&, const std::vector<Trial>&);

}  // namespace millrace
