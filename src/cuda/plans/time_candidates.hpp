// Times candidates for the same computation, some of which may be slower by orders of magnitude.
#pragma once
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

namespace millrace::cuda {

// Returns the seconds of one run of each candidate. seconds(candidate, runs) measures the median of so many runs, or
// returns infinity if the candidate fails.
//
// Each candidate first runs once. If that is more than three times slower than the fastest single run so far, the
// candidate scores infinity and is not timed further. Single runs are compared with single runs only, because runs in
// sequence are faster.
inline std::vector<double> time_candidates(std::size_t candidates,
                                           const std::function<double(std::size_t, int)>& seconds) {
  constexpr double never = std::numeric_limits<double>::infinity(), slowdown_limit = 3;
  constexpr int runs = 10;
  std::vector<double> out(candidates, never);
  double best = never;
  for (std::size_t c = 0; c < candidates; ++c) {
    const double once = seconds(c, 1);
    best = std::min(best, once);
    if (once < never && once <= slowdown_limit * best) out[c] = seconds(c, runs);
  }
  return out;
}

}  // namespace millrace::cuda
