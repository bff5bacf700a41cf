// Timing of contenders that may be slow by orders of magnitude.
#pragma once
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

namespace millrace::cuda {

// Seconds of one run of each contender, of which the best counts. seconds(contender, runs) measures: the median of so
// many runs, infinity where it fails. Single runs tell who is far behind the best so far, and that is all that is
// measured of him: infinity. They are compared among themselves alone, since a run in a row costs less.
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
