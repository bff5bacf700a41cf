// Verdict: what bounds a run, and what to change. These are pure functions from measurements to findings. A gain is
// either measured by a trial or an upper bound from measured time; no gain comes from a table.
#pragma once
#include <string>
#include <vector>

#include "millrace/advisor/rules/bottleneck_metrics.hpp"

namespace millrace {

// The bound, other than computing, that takes most of the time; compute if none takes enough to be stated.
Bound largest_bound(const BottleneckMetrics&);

// A change of one key that may help.
struct Change {
  Bound bound = Bound::input;  // what it acts against
  std::string key, from, to;
  std::string caution;        // what else it changes; empty: the results of training stay the same
  double min_gain = 1.05;     // smaller gains are not worth it, or noise
  std::string evidence = {};  // what was measured in its favour
};

// The changes to be tried: their rules apply, and their bounds take enough of the step.
std::vector<Change> changes_to_try(const BottleneckMetrics&);

struct Trial {
  Change change;
  double step = 0;           // seconds of a step with the change, scaled to the samples of a baseline step
  double baseline = 0;       // seconds of a step as configured, measured next to it
  std::string failure = {};  // why it did not run; empty: it did
  // The change and the baseline were measured again in alternating rounds; `faster` counts those that the change won.
  int rounds = 0, faster = 0;
  // Four of five rounds were faster; otherwise the difference is noise.
  bool is_significant() const { return faster * 5 >= rounds * 4; }
};

struct Finding {
  Bound bound = Bound::input;
  double gain = 1;           // predicted speed relative to the present one
  bool at_most = false;      // `gain` is an upper bound, not a prediction
  bool whole_bound = false;  // the upper bound assumes that all time of the bound vanishes
  std::string evidence;      // what was measured
  std::string advice;        // "data.workers 1 -> 3"
  std::string caution;       // as Change::caution
};
// The largest gain first; only what exceeds the noise.
std::vector<Finding> findings(const BottleneckMetrics&, const std::vector<Trial>& = {});

// A change that applies, but whose gain no measurement tells.
struct Hint {
  std::string advice, evidence, caution;
};
std::vector<Hint> hints(const BottleneckMetrics&);

// Whether a run without a probe has too few steps for a verdict.
bool too_short_to_judge(const BottleneckMetrics&);

// The first line states the bound, its share, what to change and what that gains. The other findings, the hints and all
// trials follow. One line without advice if the run is too short. Empty if no step was measured.
std::string verdict(const BottleneckMetrics&, const std::vector<Trial>& = {});

}  // namespace millrace
