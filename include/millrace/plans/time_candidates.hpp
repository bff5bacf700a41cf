// Times candidates for the same computation, some of which may be slower by orders of magnitude. It knows no GPU: the
// measurement is a function, and tests pass a fake clock.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

namespace millrace {

struct TimingRules {
  double warm_up_seconds = 0.03;  // of work before the first time that counts; an idle device has a low clock
  double batch_seconds = 5e-4;    // a measurement repeats short candidates for so long: a kernel may take 2 us
  int max_calls = 128;            // of one candidate in a measurement
  int pairs = 5;                  // of rounds
  double slowdown_limit = 3;      // candidates slower than the fastest by this factor are not timed further
};

// Seconds of so many calls of a candidate, one after the other; infinity if the candidate fails.
using MeasureCalls = std::function<double(std::size_t candidate, int calls)>;

// Returns the seconds of one call of each candidate; infinity for those that fail or are much slower than the fastest.
//
// The device first works for a while, so that its clock has risen. Then each candidate is called once to find the slow
// ones; one that seems slow is called once more, in case only that moment was slow. The rest are timed in rounds, so
// that a slow moment affects all of them. Rounds come in pairs, one from the first candidate to the last and one back:
// in the mean of a pair, a clock that drifts steadily favours none. The result is the median of these means.
inline std::vector<double> time_candidates(std::size_t candidates, const MeasureCalls& seconds,
                                           const TimingRules& rules = {}) {
  constexpr double never = std::numeric_limits<double>::infinity();
  constexpr int max_warm_up = 10000;  // measurements, in case the clock stands still
  const auto calls_of = [&](double once) {
    return once > 0 ? int(std::clamp(std::ceil(rules.batch_seconds / once), 1.0, double(rules.max_calls)))
                    : rules.max_calls;
  };
  double worked = 0, last = 0;
  int calls = 1;
  for (std::size_t c = 0, tries = 0; c < candidates && worked < rules.warm_up_seconds && tries < max_warm_up; ++tries) {
    last = seconds(c, calls);
    if (last < never) {
      worked += last;
      calls = calls_of(last / calls);
    } else {
      ++c;
    }
  }
  std::vector<double> once(candidates), out(candidates, never);
  for (std::size_t c = 0; c < candidates; ++c) once[c] = seconds(c, 1);
  std::vector<std::size_t> timed;
  const auto slow = [&](std::size_t c) {
    return once[c] > rules.slowdown_limit * *std::min_element(once.begin(), once.end());
  };
  for (std::size_t c = 0; c < candidates; ++c) {
    if (once[c] < never && slow(c)) once[c] = std::min(once[c], seconds(c, 1));
    if (once[c] < never && !slow(c)) timed.push_back(c);
  }
  std::vector<std::vector<double>> means(candidates);
  for (int pair = 0; pair < rules.pairs; ++pair) {
    for (const std::size_t c : timed) means[c].push_back(seconds(c, calls_of(once[c])) / calls_of(once[c]));
    for (std::size_t i = timed.size(); i-- > 0;) {
      const std::size_t c = timed[i];
      means[c].back() = (means[c].back() + seconds(c, calls_of(once[c])) / calls_of(once[c])) / 2;
    }
  }
  for (const std::size_t c : timed) {
    auto middle = means[c].begin() + std::ptrdiff_t(means[c].size() / 2);
    std::nth_element(means[c].begin(), middle, means[c].end());
    out[c] = *middle;
  }
  return out;
}

// The candidate to use. Those within 2% of the fastest count as equal, so that noise does not decide: the first of them
// is taken, because libraries propose their best guess first. Returns seconds.size() if all are infinite.
inline std::size_t choose_candidate(const std::vector<double>& seconds) {
  double best = std::numeric_limits<double>::infinity();
  for (const double s : seconds) best = std::min(best, s);
  for (std::size_t c = 0; c < seconds.size(); ++c)
    if (seconds[c] < std::numeric_limits<double>::infinity() && seconds[c] <= best * 1.02) return c;
  return seconds.size();
}

}  // namespace millrace
