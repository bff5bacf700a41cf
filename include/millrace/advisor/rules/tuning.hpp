// Tuning: which keys to search, which value to try next, what counts as a gain, and what is said at the end. Pure
// functions of what was measured, as the verdict is. The search is greedy: one key after the other, the one first whose
// bound takes most of the step now; changes that help only together are not found.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/advisor/rules/verdict.hpp"

namespace millrace {

using Settings = std::vector<std::pair<std::string, std::string>>;  // keys with their values, each key once

// A key and its values that may be tried.
struct SearchAxis {
  Bound bound = Bound::compute;  // what it is against
  std::string key;
  Values values;                // the present one among them
  int now = 0;                  // where
  std::vector<int> first;       // to be tried before all others
  bool ordered_values = true;   // neighbours of the best are tried next; false: only those in `first`
  int lowest = 0;               // the ladder's first rung
  std::vector<Settings> along;  // what changes with each value; empty: nothing
};

// What the axes go by besides times.
struct TuneLimits {
  std::int64_t most_rows = 0;        // of a micro-batch that fits into memory
  std::uint64_t ring_bytes = 0;      // that batches read ahead may take of host memory
  std::uint64_t gradient_bytes = 0;  // float32, in all
  int fusion = 0, most_fusion = 0;   // level in use, the last there is
  std::int64_t most_global = 0;      // samples of a step that may be tried; 0: the global batch stays
};
// In the order of keys within a bound. Those without a second value are left out.
std::vector<SearchAxis> tune_axes(const BottleneckMetrics&, const TuneLimits&);

// Below this share of the step a bound is left alone: nothing against it could give more.
inline constexpr double min_tuned_share = 0.03;
// The axis whose bound takes most of the step; of several the first. None: none takes min_tuned_share.
std::optional<std::size_t> next_axis(const BottleneckMetrics&, std::span<const SearchAxis>);

// The value to try next: those named first; then, where the last gains were, the neighbours of the best so far, upwards
// first. `tried`: the values tried, in order, and whether each was kept (it is the best then).
struct TriedValue {
  int value = 0;
  bool kept = false;
};
std::optional<int> next_value(const SearchAxis&, std::span<const TriedValue> tried);

// Noise: the standard deviation of the logarithm of one measurement, from the differences of successive ones of the
// same configuration; by their median, so that a few slow moments do not count. 0.01 at least.
double noise_of(const std::vector<double>& differences);
void add_differences(std::vector<double>& differences, std::span<const double> successive);

// After some turns, each a measurement with the change and one beside it. gains: time beside over time with it.
enum class TrialDecision { more, keep, drop };
inline constexpr double min_gain = 1.03;
inline constexpr int max_rounds = 5;
// keep: three turns at least, and the median gain is beyond min_gain by two standard errors, or, at the last turn,
// beyond both; and all turns but one, at most, are faster. drop: it could not even reach min_gain by two standard
// errors more.
TrialDecision decide_trial(const std::vector<double>& gains, double noise, int turns = max_rounds);

struct TuneTrial {
  std::string key, from, to;
  std::vector<double> changed, baseline;  // seconds of a step, by turns, for as many samples
  bool kept = false;
  std::string failure;  // it did not run; the reason
  std::vector<double> gains() const;
};

// What a new global batch does to the learning rate. Nothing is changed by it.
struct LearningRateChange {
  std::string optimizer;
  double rate = 0, rate_batch = 0;  // optim.lr, optim.lr_batch
  std::int64_t from = 0, to = 0;    // global batch
};
std::string learning_rate_note(const LearningRateChange&);

// All that tune says after the search.
struct TuneOutcome {
  BottleneckMetrics before;
  std::vector<TuneTrial> trials;
  std::vector<std::string> untried;     // "comm.bucket_size: one rank sums with nobody"
  std::string start_failure;            // why the configuration as it is does not run; empty: it does
  Settings changes;                     // from the configuration to the best that was found
  std::vector<double> tuned, baseline;  // seconds of a step with all of them, and beside; empty: not confirmed
  double noise = 0;
  std::string stopped;  // why the search ended early; empty: it did not
  std::vector<std::string> consequences;
  bool stands() const;  // do the changes as a whole gain more than noise? Where nothing could stand beside: yes
};
// INI text of the settings, in sections; comments before it.
std::string config_snippet(const Settings&, const std::vector<std::string>& comments = {});
std::string tuning_report(const TuneOutcome&);

}  // namespace millrace
